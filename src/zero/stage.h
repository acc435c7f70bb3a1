// The table of stages in zero.h, as values that the code asks instead of comparing numbers.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>

namespace shardcomm::zero {

struct StageTraits {
  bool shards_values;     // a rank holds its part; the whole exists only in a unit. Else every rank holds all
  bool shards_gradients;  // whole gradients exist only in a unit. Else they live as long as the engine
  bool shards_updates;    // a rank optimizes its part: sums, masters and moments. Else every rank optimizes all

  // After an update the ranks need each other's new values at once.
  constexpr bool publishes() const noexcept { return shards_updates && !shards_values; }
};

inline constexpr std::array<StageTraits, 4> kStages = {{
    {.shards_values = false, .shards_gradients = false, .shards_updates = false},
    {.shards_values = false, .shards_gradients = false, .shards_updates = true},
    {.shards_values = false, .shards_gradients = true, .shards_updates = true},
    {.shards_values = true, .shards_gradients = true, .shards_updates = true},
}};
// A single rank holds every value whole, so that stage 3 has nothing to gather: it is stage 2.
constexpr StageTraits traits_of(int stage, int world_size) noexcept {
  return kStages[static_cast<size_t>(world_size == 1 ? std::min(stage, 2) : stage)];
}

}  // namespace shardcomm::zero
