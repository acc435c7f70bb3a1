// What an announcement says of where a rank's bytes are: an entry an item. Before the entries of many items stands, in
// one number, how they lie in their windows. Ranks whose tensors lie alike, as those of one model do, find each other's
// bytes by their own addresses and need not read each other's entries, which costs more than short tensors do.
#pragma once
#include <cstdint>
#include <span>

#include "collectives/engine.h"

namespace shardcomm {

struct SourceTable {
  uint64_t layout = 0;                     // equal on ranks whose items lie alike; 0: unlike any other
  bool staged = false;                     // read the bytes from the owner's staging ring
  std::span<const SourceEntry> entries{};  // none from ranks that offer nothing (broadcast)
  bool is_like(uint64_t other) const noexcept { return layout != 0 && layout == other; }
};

// Items of one announcement; the room of one entry is the layout's.
inline constexpr size_t kMaxEntries = kInlineCapacity / sizeof(SourceEntry) - 1;

// This rank's, written into the payload of its next message.
SourceTable write_table(Execution& execution, const Step& step);
size_t payload_bytes(const Step& step, const SourceTable& table) noexcept;
// A peer's, once it has announced. Not for a rank's own, which lies in its peers' caches by now.
SourceTable read_table(const Fabric& fabric, const Step& step, Rank peer) noexcept;

}  // namespace shardcomm
