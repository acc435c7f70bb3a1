#include "tools/trainer/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace shardcomm::trainer {
namespace {

// Two standard normal numbers from one counter (Box and Muller): elements 2 * pair and 2 * pair + 1 of the stream.
struct NormalPair {
  double even;
  double odd;
};

NormalPair normal_pair(uint64_t key, uint64_t pair) {
  const uint64_t bits = mix_bits(key ^ mix_bits(pair));
  const double radius_uniform = (static_cast<double>(bits >> 32) + 0.5) * 0x1p-32;  // in (0, 1)
  const double angle_uniform = (static_cast<double>(bits & 0xffffffffu) + 0.5) * 0x1p-32;
  const double radius = std::sqrt(-2 * std::log(radius_uniform));
  const double angle = 2 * std::numbers::pi * angle_uniform;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace

void fill_initial(const InitPart& part, InitRule rule, std::span<float> out) {
  if (rule.stddev == 0) {
    std::fill(out.begin(), out.end(), rule.mean);
    return;
  }
  const uint64_t key = stream_key(part.seed, part.name);
  for (size_t i = 0; i < out.size();) {
    const uint64_t element = part.first + i;
    const NormalPair normal = normal_pair(key, element / 2);
    const auto scaled = [&](double x) { return static_cast<float>(double{rule.mean} + double{rule.stddev} * x); };
    if (element % 2 == 0) {
      out[i++] = scaled(normal.even);
      if (i == out.size()) return;
    }
    out[i++] = scaled(normal.odd);
  }
}

}  // namespace shardcomm::trainer
