// The numbers of one update of AdamW. The arithmetic on elements is a kernel (kernels::AdamLaunch).
#pragma once
#include <cmath>

#include "kernels/kernels.h"
#include "shardcomm/optimizer.h"

namespace shardcomm::zero {

// `step` counts from 1.
inline kernels::AdamConstants adam_constants(const AdamWOptions& options, uint64_t step, float learning_rate,
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

}  // namespace shardcomm::zero
