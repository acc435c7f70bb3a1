// Finds where the bytes of a step lie at each rank, as this rank can reach them: what direct_copy.cc and
// direct_reduce.cc share.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/call_tables.h"
#include "collectives/engine.h"
#include "collectives/source_table.h"

namespace shardcomm {

// A rank that this rank reads, itself included. The entries lie in that rank's message, so they are valid until it
// has announced twice more.
struct Source {
  // `own_fingerprint`: of this rank's table; 0 matches no peer.
  Source(const Fabric& fabric, const Step& step, Rank peer, uint64_t own_fingerprint) noexcept
      : rank(peer), is_self(peer == fabric.rank) {
    if (is_self) return;
    const SourceTable table = read_table(fabric, step, peer);
    matches = table.matches(own_fingerprint);
    entries = table.entries;
  }

  Rank rank;
  bool is_self;
  bool matches = true;                     // its items lie at the same places of its windows as this rank's of its own
  std::span<const SourceEntry> entries{};  // what it announced; empty of this rank itself
};

// The place of bytes of a source.
struct Location {
  const std::byte* mapped;  // null: not mapped here, to be read by cross-memory attach
  uint64_t address;         // in the owner's process; only where they are not mapped

  Location plus(size_t offset_bytes) const noexcept {
    return mapped != nullptr ? Location{mapped + offset_bytes, 0} : Location{nullptr, address + offset_bytes};
  }
};
// Finds where the `in` of an item begins at the source; the item must have elements. `own`: what lies here at the place
// where that lies at a source that matches. The entry is not looked at there, and the location is always mapped.
inline Location locate(Execution& execution, const Source& source, size_t item, const std::byte* own) noexcept {
  if (source.is_self) return {own, 0};
  if (source.matches) return {execution.sources.window_of(own, 1)->counterpart(source.rank, own), 0};
  const SourceEntry& entry = source.entries[item];
  return {execution.sources.locate(source.rank, entry), entry.address};
}

// The tables that are kept with the call for this step, once its table has been written; null where nothing is kept.
inline CallTables* kept_tables(const Step& step) noexcept {
  return step.tables != nullptr && step.tables->windows != 0 ? step.tables : nullptr;
}

// Reads from an address of the source's process. kFailedPrecondition where ranks do not attach: what is neither mapped
// nor to be attached lies in a window that this rank has destroyed.
Status read_attached(Fabric& fabric, Rank source, std::span<std::byte> target, uint64_t address);

// The order in which a rank goes through many items. Ranks that went through the same tensors at the same time would
// write next to what the others read, and their processors prefetch each other's lines; so each begins elsewhere.
class ItemOrder {
 public:
  ItemOrder(const ItemRange& range, const Fabric& fabric) noexcept
      : range_(range),
        first_(range.first + size() * static_cast<size_t>(fabric.rank) / static_cast<size_t>(fabric.size)) {}
  size_t size() const noexcept { return range_.end - range_.first; }
  size_t operator[](size_t i) const noexcept {
    const size_t before_wrap = range_.end - first_;
    return i < before_wrap ? first_ + i : range_.first + i - before_wrap;
  }

 private:
  ItemRange range_;
  size_t first_;
};

inline constexpr size_t kBatchRows = 64;  // of a table that is not kept: enough for the launch, and still in the caches

}  // namespace shardcomm
