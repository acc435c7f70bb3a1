// The part of an announcement that says where a rank's bytes are: an entry for each item. Before the entries of many
// items stands one number, the fingerprint of where they lie in their windows. Ranks whose fingerprints are equal, as
// those of one model are, find each other's bytes from their own addresses and do not read each other's entries, which
// takes longer than copying short tensors does.
#pragma once
#include <cstdint>
#include <span>

#include "collectives/engine.h"

namespace shardcomm {

struct SourceTable {
  uint64_t fingerprint = 0;  // equal on ranks whose items lie at the same places of their windows; 0: none
  bool staged = false;       // the bytes are read from the owner's staging ring
  std::span<const SourceEntry> entries{};  // empty where no peer reads this rank (broadcast)

  // Returns whether this rank's items lie at the same places.
  bool matches(uint64_t own_fingerprint) const noexcept { return fingerprint != 0 && fingerprint == own_fingerprint; }
};

// The most items of one announcement. One entry's room is the fingerprint's.
inline constexpr size_t kMaxEntries = kInlineCapacity / sizeof(SourceEntry) - 1;

inline constexpr size_t kManyItems = 16;  // the fingerprint of fewer items costs more than it saves
inline bool has_fingerprint(const Step& step) noexcept { return step.items.size() >= kManyItems; }

// Writes this rank's table into the payload of its next message, and drops what is kept with the call where windows
// have come or gone.
SourceTable write_table(Execution& execution, const Step& step);
size_t payload_bytes(const Step& step, const SourceTable& table) noexcept;
// Reads the table of a peer that has announced. Not for this rank's own, whose cache lines the peers hold by now.
inline SourceTable read_table(const Fabric& fabric, const Step& step, Rank peer) noexcept {
  const auto payload = fabric.control->payload_of(peer);
  const std::span entries(reinterpret_cast<const SourceEntry*>(payload.data()), payload.size() / sizeof(SourceEntry));
  if (entries.empty()) return {};
  if (!has_fingerprint(step)) return {.staged = entries.front().staged != 0, .entries = entries};
  const uint64_t fingerprint = entries.front().address;
  // Items that all lie in windows are not staged, so the cache lines of their entries are not fetched.
  const bool staged = fingerprint == 0 && entries[1].staged != 0;
  return {.fingerprint = fingerprint, .staged = staged, .entries = entries.subspan(1)};
}

// Returns whether any rank has staged its bytes: then all ranks take part in handing out the slots of its ring.
bool any_staged(const Fabric& fabric, const Step& step, bool own_staged) noexcept;

}  // namespace shardcomm
