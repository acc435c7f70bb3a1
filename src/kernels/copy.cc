// Copies: the C library's for what fits the caches, the host path's beyond.
#include <cstring>

#include "kernels/host_path.h"
#include "kernels/kernels.h"

namespace shardcomm::kernels {

Status launch(const CopyLaunch& args, StreamRef stream) {
  if (stream.device().kind != Device::Kind::kHost) {
    return Status(Code::kUnsupported, "copy: this build has no kernels for CUDA streams");
  }
  if (args.bytes == 0 || args.target == args.source) return {};
  const size_t footprint_bytes = args.footprint_bytes != 0 ? args.footprint_bytes : 2 * (2 * args.bytes);
  if (exceeds_caches(footprint_bytes)) {
    host_path().copy_large(static_cast<std::byte*>(args.target), static_cast<const std::byte*>(args.source),
                           args.bytes);
  } else {
    std::memcpy(args.target, args.source, args.bytes);
  }
  return {};
}

}  // namespace shardcomm::kernels
