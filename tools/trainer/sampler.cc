#include "tools/trainer/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "tools/trainer/init.h"

namespace shardcomm::trainer {

Status validate(const SamplerOptions& options) {
  if (options.temperature >= 0 && std::isfinite(options.temperature)) return {};
  return Status(Code::kInvalidArgument,
                "temperature is " + std::to_string(options.temperature) + "; it must be 0 or above");
}

int32_t Sampler::next(std::span<const float> logits) {
  const uint64_t bits = mix_bits(stream_key(options_.seed, "sampler") ^ mix_bits(draws_++));
  const double uniform = static_cast<double>(bits >> 11) * 0x1p-53;  // in [0, 1)
  const size_t candidates = options_.top_k == 0 ? logits.size() : std::min(options_.top_k, logits.size());
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  // NaN counts as the least likely, so that the order is strict whatever the model says.
  const auto key = [&](int32_t token) {
    const float logit = logits[static_cast<size_t>(token)];
    return std::isnan(logit) ? -INFINITY : logit;
  };
  const auto before = [&](int32_t a, int32_t b) { return key(a) != key(b) ? key(a) > key(b) : a < b; };
  std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(candidates), order_.end(), before);
  if (options_.temperature == 0) return order_[0];

  weights_.resize(candidates);
  const double largest = double{key(order_[0])};
  double sum = 0;
  for (size_t i = 0; i < candidates; ++i) {
    weights_[i] = std::exp((double{key(order_[i])} - largest) / options_.temperature);
    sum += weights_[i];
  }
  double left = uniform * sum;
  for (size_t i = 0; i < candidates; ++i) {
    left -= weights_[i];
    if (left < 0) return order_[i];
  }
  return order_[0];  // rounding, or no finite logit at all
}

}  // namespace shardcomm::trainer
