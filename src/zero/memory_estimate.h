// What an engine of this layout holds and moves, from sizes alone. The engine allocates by these numbers, and the
// estimate is a dry run of its state machine with them, so that both agree.
#pragma once
#include "zero/memory_account.h"
#include "zero/schedule.h"
#include "zero/unit.h"

namespace shardcomm::zero {

// Elements of a bucket that one rank optimizes and holds reduced gradients of.
size_t owned_count(const UnitBucket& bucket, int stage) noexcept;
// Elements that one rank optimizes, padding included.
size_t owned_trainable_count(const Layout& layout, int stage) noexcept;
// Of those, the ones whose values are bf16 and have an f32 master.
size_t master_count(const Layout& layout, int stage) noexcept;
// At stages 0 and 1, f32 whole gradients are reduced in place and are the sums; else the sums have memory of their own.
bool sums_in_place(const Layout& layout, int stage) noexcept;

// Memory that lives as long as the engine.
struct Footprint {
  size_t values_bytes = 0;          // window: shards, or whole values at stages 0 to 2
  size_t whole_gradient_bytes = 0;  // window: stages 0 and 1
  size_t sum_bytes = 0;             // f32 sums of gradients with memory of their own
  size_t master_bytes = 0;
  size_t moment_bytes = 0;  // of AdamW
};
Footprint footprint_of(const Layout& layout, int stage) noexcept;

// Payload that peers take from this rank.
size_t gather_bytes_sent(const Layout& layout, UnitId unit) noexcept;
size_t reduce_bytes_sent(const Layout& layout, UnitId unit, int stage) noexcept;
size_t publish_bytes_sent(const Layout& layout, UnitId unit, int stage) noexcept;  // new values, after the optimizer

// One training step in the declared order, carried out on numbers.
struct DryRun {
  size_t peak_bytes = 0;         // with AdamW
  size_t gathered_capacity = 0;  // of the arena in which no gather of this step lacks room
  size_t gradient_capacity = 0;  // the same for whole gradients (stages 2 and 3)
  size_t gather_count = 0;
  size_t gather_bytes_sent = 0;
  size_t reduce_bytes_sent = 0;
  size_t publish_bytes_sent = 0;
};
DryRun dry_run(const Layout& layout, const ZeroOptions& options);

}  // namespace shardcomm::zero
