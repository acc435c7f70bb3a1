// The learning rate, as a function of the global step and nothing else, so that a resumed run continues it.
#pragma once
#include <cstdint>
#include <string_view>

#include "shardcomm/status.h"

namespace shardcomm::trainer {

// After the linear warm-up: half a cosine or a line down to the minimum at the last step; constant; or wsd (warm-up,
// stable, decay): constant, then a line down to the minimum over the last fifth of the steps.
enum class Decay : uint8_t { kCosine, kLinear, kConstant, kWsd };

struct LearningRate {
  double at(uint64_t step) const noexcept;  // counts from 0; beyond the last step it stays at the minimum

  Decay decay = Decay::kCosine;
  double peak = 3e-3;
  double min_ratio = 0.1;  // the minimum, as a part of the peak
  uint64_t warmup = 0;     // steps
  uint64_t steps = 1;      // of the whole run, warm-up included
};

Result<Decay> parse_decay(std::string_view text);  // "cosine", "linear", "constant", "wsd"
Status validate(const LearningRate& rate);

}  // namespace shardcomm::trainer
