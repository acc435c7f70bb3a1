#include "tools/trainer/unit_parameters.h"

#include <bit>
#include <cstdint>

namespace shardcomm::trainer {
namespace {

float widen(uint16_t bf16) { return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16); }

// To nearest, ties to even; NaN stays NaN.
uint16_t narrow(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

void widen_all(const std::byte* from, size_t count, float* to) {
  const auto* narrow_values = reinterpret_cast<const uint16_t*>(from);
  for (size_t i = 0; i < count; ++i) to[i] = widen(narrow_values[i]);
}

bool is_wide(DType dtype) { return dtype == DType::kF32; }

}  // namespace

std::span<const Parameter> UnitParameters::open(std::span<const ParameterView> views) {
  size_t floats = 0;
  for (const ParameterView& view : views) {
    if (!is_wide(view.dtype)) floats += view.count;
    if (view.gradient != nullptr && !is_wide(view.gradient_dtype)) floats += view.count;
  }
  if (scratch_.size() < floats) scratch_.resize(floats);
  float* next = scratch_.data();
  parameters_.clear();
  for (const ParameterView& view : views) {
    Parameter parameter{reinterpret_cast<const float*>(view.value), reinterpret_cast<float*>(view.gradient),
                        view.count};
    if (!is_wide(view.dtype)) {
      widen_all(view.value, view.count, next);
      parameter.value = next;
      next += view.count;
    }
    if (view.gradient != nullptr && !is_wide(view.gradient_dtype)) {
      widen_all(view.gradient, view.count, next);
      parameter.gradient = next;
      next += view.count;
    }
    parameters_.push_back(parameter);
  }
  return parameters_;
}

void UnitParameters::close(std::span<const ParameterView> views) {
  for (size_t i = 0; i < views.size(); ++i) {
    const ParameterView& view = views[i];
    if (view.gradient == nullptr || is_wide(view.gradient_dtype)) continue;
    auto* target = reinterpret_cast<uint16_t*>(view.gradient);
    for (size_t k = 0; k < view.count; ++k) target[k] = narrow(parameters_[i].gradient[k]);
  }
}

}  // namespace shardcomm::trainer
