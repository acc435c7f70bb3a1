// Compiled without contraction to fused operations (CMakeLists.txt): vector body and scalar tail of a loop must round
// alike, or the bits would depend on where a shard begins.
#include "zero/adam.h"

#include <cmath>

#include "zero/bf16.h"

namespace shardcomm::zero {

AdamConstants adam_constants(const AdamWOptions& options, uint64_t step, float learning_rate,
                             float gradient_scale) noexcept {
  const auto t = static_cast<double>(step);
  return {.beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .learning_rate = learning_rate,
          .gradient_scale = gradient_scale,
          .first_correction = static_cast<float>(1 / (1 - std::pow(static_cast<double>(options.beta1), t))),
          .second_correction = static_cast<float>(1 / std::sqrt(1 - std::pow(static_cast<double>(options.beta2), t)))};
}

void adam_update(const AdamConstants& constants, float decay, const float* __restrict gradient, float* __restrict m,
                 float* __restrict v, float* __restrict master, size_t count) noexcept {
  const AdamConstants c = constants;
  const float shrink = 1 - c.learning_rate * decay;
  for (size_t i = 0; i < count; ++i) {
    const float g = gradient[i] * c.gradient_scale;
    m[i] = c.beta1 * m[i] + (1 - c.beta1) * g;
    v[i] = c.beta2 * v[i] + (1 - c.beta2) * (g * g);
    const float direction = m[i] * c.first_correction / (std::sqrt(v[i]) * c.second_correction + c.eps);
    master[i] = master[i] * shrink - c.learning_rate * direction;
  }
}

void round_to_bf16(const float* __restrict from, uint16_t* __restrict to, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) to[i] = bf16_of_float(from[i]);
}

void widen_from_bf16(const uint16_t* __restrict from, float* __restrict to, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) to[i] = float_of_bf16(from[i]);
}

}  // namespace shardcomm::zero
