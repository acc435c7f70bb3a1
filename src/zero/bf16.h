// bf16 as the upper half of an f32.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

namespace shardcomm::zero {

inline float float_of_bf16(uint16_t bits) noexcept { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// To nearest, ties to even; a NaN stays one, quiet. Without branches, so that loops over it vectorize.
inline uint16_t bf16_of_float(float value) noexcept {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>((is_nan ? bits | 0x00400000u : rounded) >> 16);
}

}  // namespace shardcomm::zero
