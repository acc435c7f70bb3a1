#include "tools/trainer/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace shardcomm::trainer {

Result<Decay> parse_decay(std::string_view text) {
  if (text == "cosine") return Decay::kCosine;
  if (text == "linear") return Decay::kLinear;
  if (text == "constant") return Decay::kConstant;
  if (text == "wsd") return Decay::kWsd;
  return Status(Code::kInvalidArgument,
                "schedule is '" + std::string(text) + "'; the schedules are: cosine, linear, constant, wsd");
}

Status validate(const LearningRate& rate) {
  const auto wrong = [](std::string what) { return Status(Code::kInvalidArgument, std::move(what)); };
  if (!(rate.peak > 0) || !std::isfinite(rate.peak)) {
    return wrong("the learning rate is " + std::to_string(rate.peak) + "; it must be above 0");
  }
  if (!(rate.min_ratio >= 0 && rate.min_ratio <= 1)) {
    return wrong("the minimum ratio is " + std::to_string(rate.min_ratio) + "; it must be between 0 and 1");
  }
  return {};
}

double LearningRate::at(uint64_t step) const noexcept {
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const double minimum = peak * min_ratio;
  const auto between = [&](double part) { return minimum + (peak - minimum) * part; };
  // 0 at step `from`, 1 at the end of the run.
  const auto progress = [&](double from) {
    const auto end = static_cast<double>(steps);
    return from < end ? std::clamp((static_cast<double>(step) - from) / (end - from), 0.0, 1.0) : 1.0;
  };
  const auto warm = static_cast<double>(warmup);
  switch (decay) {
    case Decay::kConstant: return peak;
    case Decay::kLinear: return between(1 - progress(warm));
    case Decay::kCosine: return between((1 + std::cos(std::numbers::pi * progress(warm))) / 2);
    case Decay::kWsd: return between(1 - progress(std::max(warm, 0.8 * static_cast<double>(steps))));
  }
  return peak;
}

}  // namespace shardcomm::trainer
