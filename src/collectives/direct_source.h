// Where the bytes of a step lie at each rank, as this rank can reach them: what direct_copy.cc and direct_reduce.cc
// share.
#pragma once
#include <cstddef>
#include <cstdint>

#include "collectives/engine.h"
#include "collectives/source_table.h"

namespace shardcomm {

// One rank that this rank reads, itself included. The table lies in that rank's message, so it is valid until that rank
// has announced twice more.
struct Source {
  Rank rank;
  bool is_self;
  bool matches;       // its items lie in its windows as this rank's lie in its own; true of this rank itself
  SourceTable table;  // what it announced; empty of this rank itself
};
// `own_fingerprint`: of this rank's table; 0 matches no peer.
Source find_source(const Fabric& fabric, const Step& step, Rank rank, uint64_t own_fingerprint) noexcept;

// Where bytes of a source are.
struct Location {
  const std::byte* mapped;  // null: not mapped here, to be read by cross-memory attach
  uint64_t address;         // in the owner's process; only where they are not mapped

  Location plus(size_t offset_bytes) const noexcept {
    return mapped != nullptr ? Location{mapped + offset_bytes, 0} : Location{nullptr, address + offset_bytes};
  }
};
// Finds where the `in` of an item with elements begins at the source. `own` is the address here that has the same place
// in this rank's window as that has in the source's, where they match: then the entry of the item is not looked at, and
// the location is always mapped.
inline Location locate(Execution& execution, const Source& source, size_t item, const std::byte* own) noexcept {
  if (source.is_self) return {own, 0};
  if (source.matches) return {execution.sources.window_of(own, 1)->counterpart(source.rank, own), 0};
  const SourceEntry& entry = source.table.entries[item];
  return {execution.sources.locate(source.rank, entry), entry.address};
}

// Reads from an address of the source's process. kFailedPrecondition where ranks do not attach: what is neither mapped
// nor to be attached lies in a window that this rank has destroyed.
Status read_attached(Fabric& fabric, Rank source, std::span<std::byte> target, uint64_t address);

// The order in which a rank goes through many items. Ranks that went through the same tensors at the same time would
// write next to what the others read, and their processors prefetch each other's lines; so each begins elsewhere.
class ItemOrder {
 public:
  ItemOrder(size_t items, const Fabric& fabric) noexcept
      : items_(items), first_(items * static_cast<size_t>(fabric.rank) / static_cast<size_t>(fabric.size)) {}
  size_t operator[](size_t i) const noexcept { return i < items_ - first_ ? first_ + i : i - (items_ - first_); }

 private:
  size_t items_, first_;
};

inline constexpr size_t kBatchRows = 64;  // of a table that is not kept: enough for the launch, and still in the caches

}  // namespace shardcomm
