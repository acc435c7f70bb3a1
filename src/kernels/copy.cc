// Copies: the C library's for what fits the caches, the host path's beyond.
#include <algorithm>
#include <cstring>

#include "kernels/host_path.h"
#include "kernels/kernels.h"
#include "kernels/table.h"

namespace shardcomm::kernels {
namespace {

void copy_cached(std::byte* target, const std::byte* source, size_t bytes) { std::memcpy(target, source, bytes); }

}  // namespace

Status launch(const CopyLaunch& args, StreamRef stream) {
  const CopySegment segment{.target = static_cast<std::byte*>(args.target),
                            .source = static_cast<const std::byte*>(args.source),
                            .bytes = args.bytes};
  return launch(CopySegmentsLaunch{.segments = {&segment, 1}, .traffic_bytes = args.traffic_bytes}, stream);
}

Status launch(const CopySegmentsLaunch& args, StreamRef stream) {
  if (stream.device().kind != Device::Kind::kHost) {
    return Status(Code::kUnsupported, "copy: this build has no kernels for CUDA streams");
  }
  const auto bytes_of = [](const CopySegment& segment) { return segment.target == segment.source ? 0 : segment.bytes; };
  const size_t bytes = total(args.segments, bytes_of);
  const size_t traffic_bytes = args.traffic_bytes != 0 ? args.traffic_bytes : 2 * (2 * bytes);
  const HostCopyFunction copy = exceeds_caches(traffic_bytes) ? host_path().copy_large : copy_cached;
  share(args.segments, bytes_of, bytes, /*unit_bytes=*/1, args.team,
        [&](std::span<const CopySegment> segments, size_t skipped, size_t left) {
          for (auto segment = segments.begin(); left != 0; ++segment) {
            const size_t count = std::min(bytes_of(*segment) - skipped, left);
            if (count != 0) copy(segment->target + skipped, segment->source + skipped, count);
            left -= count;
            skipped = 0;
          }
        });
  return {};
}

}  // namespace shardcomm::kernels
