// The arithmetic of AdamW on plain arrays: elementwise, so that its bits do not depend on how parameters are split.
#pragma once
#include <cstddef>
#include <cstdint>

#include "shardcomm/optimizer.h"

namespace shardcomm::zero {

// The numbers of one update, equal for all elements but the decay.
struct AdamConstants {
  float beta1, beta2, eps;
  float learning_rate;
  float gradient_scale;
  float first_correction;   // 1 / (1 - beta1^t)
  float second_correction;  // 1 / sqrt(1 - beta2^t)
};
// `step` counts from 1.
AdamConstants adam_constants(const AdamWOptions& options, uint64_t step, float learning_rate,
                             float gradient_scale) noexcept;

// m, v and master of [count] elements; decay is weight_decay times the parameter's factor.
void adam_update(const AdamConstants& constants, float decay, const float* gradient, float* m, float* v, float* master,
                 size_t count) noexcept;

void round_to_bf16(const float* from, uint16_t* to, size_t count) noexcept;
void widen_from_bf16(const uint16_t* from, float* to, size_t count) noexcept;

}  // namespace shardcomm::zero
