// Reductions: checks the arguments, then one call a segment into the host path. One source is a copy.
#include <algorithm>
#include <string>

#include "kernels/host_path.h"
#include "kernels/kernels.h"

namespace shardcomm::kernels {
namespace {

size_t touched_bytes(const ReduceSegmentsLaunch& args) {
  size_t count = 0;
  for (const ReduceSegment& segment : args.segments) count += segment.count;
  return count * size_of(args.dtype) * (args.source_count + 1);
}

}  // namespace

Status launch(const ReduceLaunch& args, StreamRef stream) {
  const ReduceSegment one{static_cast<std::byte*>(args.target), args.sources.data(), args.count};
  return launch(ReduceSegmentsLaunch{{&one, 1}, args.sources.size(), args.dtype, args.op, args.footprint_bytes},
                stream);
}

Status launch(const ReduceSegmentsLaunch& args, StreamRef stream) {
  if (!supports(args.dtype, args.op)) {
    return Status(Code::kUnsupported,
                  "reduce: " + std::string(name(args.op)) + " of " + std::string(name(args.dtype)) + " is not defined");
  }
  if (stream.device().kind != Device::Kind::kHost) {
    return Status(Code::kUnsupported, "reduce: this build has no kernels for CUDA streams");
  }
  if (args.source_count == 0) return Status(Code::kInvalidArgument, "reduce: no sources");
  const bool large = exceeds_caches(args.footprint_bytes != 0 ? args.footprint_bytes : 2 * touched_bytes(args));
  const HostReduceFunction reduce = host_path().find_reduce(args.dtype, args.op);
  for (const ReduceSegment& segment : args.segments) {
    if (segment.count == 0) continue;
    if (args.source_count == 1) {
      const CopyLaunch copy{segment.target, segment.sources[0], segment.count * size_of(args.dtype),
                            args.footprint_bytes};
      if (Status status = launch(copy, stream); !status.ok()) return status;
      continue;
    }
    const void* const* const end = segment.sources + args.source_count;
    const bool in_place = std::find(segment.sources, end, segment.target) != end;
    reduce({.target = segment.target,
            .sources = segment.sources,
            .source_count = args.source_count,
            .count = segment.count,
            .large = large,
            .streaming = large && !in_place});  // in place the lines have been read anyway
  }
  return {};
}

}  // namespace shardcomm::kernels
