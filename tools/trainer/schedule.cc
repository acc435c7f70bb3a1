#include "tools/trainer/schedule.h"

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

Status validate(const Schedule& schedule) {
  const auto wrong = [](std::string what) { return Status(Code::kInvalidArgument, std::move(what)); };
  if (!(schedule.peak > 0) || !std::isfinite(schedule.peak)) {
    return wrong("the learning rate is " + std::to_string(schedule.peak) + "; it must be above 0");
  }
  if (!(schedule.min_ratio >= 0 && schedule.min_ratio <= 1)) {
    return wrong("the minimum ratio is " + std::to_string(schedule.min_ratio) + "; it must be between 0 and 1");
  }
  return {};
}

double learning_rate(const Schedule& schedule, uint64_t step) {
  if (step < schedule.warmup) {
    return schedule.peak * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup);
  }
  const double minimum = schedule.peak * schedule.min_ratio;
  const auto between = [&](double part) { return minimum + (schedule.peak - minimum) * part; };
  // 0 at step `from`, 1 at the end of the run.
  const auto progress = [&](double from) {
    const auto end = static_cast<double>(schedule.steps);
    return from < end ? std::clamp((static_cast<double>(step) - from) / (end - from), 0.0, 1.0) : 1.0;
  };
  const auto warmup = static_cast<double>(schedule.warmup);
  switch (schedule.decay) {
    case Decay::kConstant: return schedule.peak;
    case Decay::kLinear: return between(1 - progress(warmup));
    case Decay::kCosine: return between((1 + std::cos(std::numbers::pi * progress(warmup))) / 2);
    case Decay::kWsd: return between(1 - progress(std::max(warmup, 0.8 * static_cast<double>(schedule.steps))));
  }
  return schedule.peak;
}

}  // namespace shardcomm::trainer
