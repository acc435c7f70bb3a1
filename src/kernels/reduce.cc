// Reductions: checks the arguments, then one call into the host path, or one a thread. One source is a copy.
#include <string>

#include "kernels/host_path.h"
#include "kernels/kernels.h"
#include "kernels/table.h"

namespace shardcomm::kernels {

Status launch(const ReduceLaunch& args, StreamRef stream) {
  const ReduceSegment segment{
      .target = static_cast<std::byte*>(args.target), .sources = args.sources.data(), .count = args.count};
  return launch(ReduceSegmentsLaunch{.segments = {&segment, 1},
                                     .source_count = args.sources.size(),
                                     .dtype = args.dtype,
                                     .op = args.op,
                                     .scale = args.scale,
                                     .traffic_bytes = args.traffic_bytes},
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
  const auto count_of = [](const ReduceSegment& segment) { return segment.count; };
  const size_t element = size_of(args.dtype);
  // Copied as it is, unless a result differs from its only source.
  if (args.source_count == 1 && args.scale == 1 && args.dtype != DType::kBool) {
    for (const ReduceSegment& segment : args.segments) {
      const CopySegment copy{.target = segment.target,
                             .source = static_cast<const std::byte*>(segment.sources[0]),
                             .bytes = segment.count * element};
      const CopySegmentsLaunch table{.segments = {&copy, 1}, .traffic_bytes = args.traffic_bytes, .team = args.team};
      if (Status status = launch(table, stream); !status.ok()) return status;
    }
    return {};
  }
  const size_t count = total(args.segments, count_of);
  const size_t touched_bytes = count * element * (args.source_count + 1);
  const bool large = exceeds_caches(args.traffic_bytes != 0 ? args.traffic_bytes : 2 * touched_bytes);
  const HostReduceFunction reduce = host_path().find_reduce(args.dtype, args.op);
  share(args.segments, count_of, count, element, args.team,
        [&](std::span<const ReduceSegment> segments, size_t skipped, size_t part) {
          reduce({segments.data(), args.source_count, skipped, part, large, args.scale});
        });
  return {};
}

}  // namespace shardcomm::kernels
