#include "collectives/direct_source.h"

#include <fmt/format.h>

namespace shardcomm {

Status read_attached(Fabric& fabric, Rank source, std::span<std::byte> target, uint64_t address) {
  if (fabric.attach == Attach::kNever) {
    SHARDCOMM_TRY(fabric.windows->why_not(source));
    return Status(Code::kFailedPrecondition,
                  fmt::format("rank {} offers memory in a window that this rank has destroyed", source));
  }
  return fabric.read(source, target.data(), address, target.size());
}

}  // namespace shardcomm
