// Reductions: checks the arguments, then one call into the host path. One source is a copy.
#include <algorithm>
#include <string>

#include "kernels/host_path.h"
#include "kernels/kernels.h"

namespace shardcomm::kernels {

Status launch(const ReduceLaunch& args, StreamRef stream) {
  if (!supports(args.dtype, args.op)) {
    return Status(Code::kUnsupported,
                  "reduce: " + std::string(name(args.op)) + " of " + std::string(name(args.dtype)) + " is not defined");
  }
  if (stream.device().kind != Device::Kind::kHost) {
    return Status(Code::kUnsupported, "reduce: this build has no kernels for CUDA streams");
  }
  if (args.sources.empty()) return Status(Code::kInvalidArgument, "reduce: no sources");
  const size_t bytes = args.count * size_of(args.dtype);
  if (bytes == 0) return {};
  if (args.sources.size() == 1) return launch(CopyLaunch{args.target, args.sources[0], bytes}, stream);

  const bool in_place = std::find(args.sources.begin(), args.sources.end(), args.target) != args.sources.end();
  const size_t touched_bytes = bytes * (args.sources.size() + 1);
  const bool large = exceeds_caches(args.footprint_bytes != 0 ? args.footprint_bytes : 2 * touched_bytes);
  const HostReduce reduce{.target = static_cast<std::byte*>(args.target),
                          .sources = args.sources.data(),
                          .source_count = args.sources.size(),
                          .count = args.count,
                          .large = large,
                          .streaming = large && !in_place};  // in place the lines have been read anyway
  host_path().find_reduce(args.dtype, args.op)(reduce);
  return {};
}

}  // namespace shardcomm::kernels
