// Copies: the C library's for what fits the caches, the host path's beyond.
#include <cstring>

#include "kernels/host_path.h"
#include "kernels/kernels.h"

namespace shardcomm::kernels {
namespace {

size_t bytes_of(std::span<const CopySegment> segments) {
  size_t bytes = 0;
  for (const CopySegment& segment : segments) bytes += segment.bytes;
  return bytes;
}

}  // namespace

Status launch(const CopyLaunch& args, StreamRef stream) {
  const CopySegment one{static_cast<std::byte*>(args.target), static_cast<const std::byte*>(args.source), args.bytes};
  return launch(CopySegmentsLaunch{{&one, 1}, args.footprint_bytes}, stream);
}

Status launch(const CopySegmentsLaunch& args, StreamRef stream) {
  if (stream.device().kind != Device::Kind::kHost) {
    return Status(Code::kUnsupported, "copy: this build has no kernels for CUDA streams");
  }
  const size_t footprint_bytes = args.footprint_bytes != 0 ? args.footprint_bytes : 2 * (2 * bytes_of(args.segments));
  const HostCopyFunction copy_large = exceeds_caches(footprint_bytes) ? host_path().copy_large : nullptr;
  for (const CopySegment& segment : args.segments) {
    if (segment.bytes == 0 || segment.target == segment.source) continue;
    if (copy_large != nullptr) {
      copy_large(segment.target, segment.source, segment.bytes);
    } else {
      std::memcpy(segment.target, segment.source, segment.bytes);
    }
  }
  return {};
}

}  // namespace shardcomm::kernels
