// Part of the door transport/transport.h. Each rank has a ring of kStagingSlots slots in memory that its peers map, for
// bytes that they cannot or should not read where they lie: the owner copies a chunk into a slot and publishes it,
// every peer takes it and releases it, and a slot is used again when all peers have released it. Chunks are numbered
// from 0 in each operation. One operation at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time_limit.h"
#include "shardcomm/status.h"
#include "shardcomm/types.h"

namespace shardcomm {

class MappedControl;

inline constexpr int kStagingSlots = 4;

class StagingRing {
 public:
  // Lies behind the control blocks, in the same memory.
  StagingRing(MappedControl& control, size_t slot_bytes);

  size_t slot_bytes() const noexcept { return slot_bytes_; }

  // --- the owner ---
  Result<std::byte*> slot(uint64_t chunk, TimeLimit& limit);  // free to be filled
  void publish(uint64_t chunk) noexcept;
  // --- the peers ---
  Result<const std::byte*> take(Rank owner, uint64_t chunk, TimeLimit& limit);
  void release(Rank owner, uint64_t chunk) noexcept;
  // --- every rank, once in each operation in which some rank stages; own_chunks: published by this rank ---
  void finish(uint64_t own_chunks) noexcept;

 private:
  std::byte* at(Rank owner, uint64_t number) const noexcept;

  MappedControl& control_;
  const size_t slot_bytes_;
  uint64_t published_base_ = 0;          // own chunks published before this operation
  std::vector<uint64_t> released_base_;  // [owner] chunks taken from its ring before this operation
  std::vector<uint64_t> released_now_;   // [owner] chunks taken in this operation
};

}  // namespace shardcomm
