// The three ways in which a geometry is carried out. Each announces, collects, moves, and leaves the peers' memory.
#pragma once
#include <span>

#include "collectives/execution.h"
#include "collectives/geometry.h"

namespace shardcomm {

// One announcement of an operation: all of it, or one phase of a collective that needs several.
struct Step {
  Geometry geometry;
  std::span<const Item> items;
  uint8_t phase = 0;
  bool last = true;              // false: a later step of the same operation protects the peers' memory
  CallTables* tables = nullptr;  // of exactly these items, to be used and filled; null: not kept
};

// What can travel inside a message.
inline constexpr size_t kInlineCapacity = kPayloadCapacity;

// The bytes travel with the announcement: one signal, one cache line for the smallest, one extra copy for the rest.
// After it nobody reads this rank's memory, so nobody waits twice. Announced bytes must fit kInlineCapacity.
Status run_inline(Execution& execution, const Step& step);

// The announcement says where the bytes are; peers read them in place and say when they have finished. Ordinary memory
// may be attached, or goes through the staging ring (run_staged).
Status run_direct(Execution& execution, const Step& step);

// Algorithms that are not a single step of an engine.
Status all_reduce_direct(Execution& execution);
Status all_reduce_many_direct(Execution& execution);
Status all_to_all_v(Execution& execution);
Status all_gather_mosaic(Execution& execution);

// --- shared by the engines ---
void announce(Execution& execution, uint8_t phase, size_t payload_bytes) noexcept;
// Waits until no peer reads what this rank has offered.
Status await_readers(Execution& execution, const Geometry& geometry);
// Moves the items when at least one rank has staged its bytes. `own_staged`: this rank has.
Status run_staged(Execution& execution, const Step& step, bool own_staged);
// Combines a run of bytes of this rank's share of an item.
struct ReduceRun {
  const Item& item;
  size_t offset_bytes, bytes;            // in the share
  std::span<const void* const> sources;  // where that run lies at every rank, in rank order
};
Status reduce_run(const Execution& execution, const ReduceRun& run);
void count_traffic(Execution& execution, const Step& step) noexcept;

}  // namespace shardcomm
