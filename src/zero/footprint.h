// What an engine of this layout holds and moves, from sizes alone. The engine allocates by these numbers, and the
// estimate adds them up.
#pragma once
#include <vector>

#include "zero/unit.h"

namespace shardcomm::zero {

// Elements of a bucket that one rank optimizes and holds reduced gradients of.
size_t owned_count(const UnitBucket& bucket, StageTraits stage) noexcept;
// Returns where those elements begin in the bucket.
size_t owned_begin(const UnitBucket& bucket, StageTraits stage, size_t rank) noexcept;
// Elements that one rank optimizes, padding included.
size_t owned_trainable_count(const Layout& layout) noexcept;
// Of those, the ones whose values are bf16 and have an f32 master.
size_t master_count(const Layout& layout) noexcept;
// At stages 0 and 1, f32 whole gradients are reduced in place and are the sums; else the sums have memory of their own.
bool sums_in_place(const Layout& layout) noexcept;

// Where the f32 arrays over everything owned and trainable (sums, moments) have each bucket: [unit][bucket], elements.
// The same for the arrays over bf16 values only (masters).
using BucketOffsets = std::vector<std::vector<size_t>>;
BucketOffsets trainable_offsets(const Layout& layout);
BucketOffsets master_offsets(const Layout& layout);

// Memory that lives as long as the engine.
struct Footprint {
  size_t values_bytes = 0;          // window: shards, or whole values at stages 0 to 2
  size_t mosaic_bytes = 0;          // mosaic windows: shards
  size_t whole_gradient_bytes = 0;  // window: stages 0 and 1
  size_t sum_bytes = 0;             // f32 sums of gradients with memory of their own
  size_t master_bytes = 0;
  size_t moment_bytes = 0;  // of AdamW
};
Footprint footprint_of(const Layout& layout) noexcept;

// Payload that peers take from this rank.
size_t gather_bytes_sent(const Layout& layout, UnitId unit, const Transfer& transfer) noexcept;
size_t reduce_bytes_sent(const Layout& layout, UnitId unit, const Transfer& transfer) noexcept;
size_t publish_bytes_sent(const Layout& layout, UnitId unit) noexcept;  // new values, after the optimizer

}  // namespace shardcomm::zero
