#include "collectives/direct_source.h"

#include <fmt/format.h>

namespace shardcomm {

Source find_source(const Fabric& fabric, const Step& step, Rank rank, uint64_t own_fingerprint) noexcept {
  if (rank == fabric.rank) return {.rank = rank, .is_self = true, .matches = true, .table = {}};
  const SourceTable table = read_table(fabric, step, rank);
  return {.rank = rank, .is_self = false, .matches = table.matches(own_fingerprint), .table = table};
}

Status read_attached(Fabric& fabric, Rank source, std::span<std::byte> target, uint64_t address) {
  if (fabric.attach == Attach::kNever) {
    return Status(Code::kFailedPrecondition,
                  fmt::format("rank {} offers memory in a window that this rank has destroyed", source));
  }
  return fabric.read(source, target.data(), address, target.size());
}

}  // namespace shardcomm
