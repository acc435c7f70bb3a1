// What the element-wise loops need to run at vector speed: a build of the function for AVX2 beside the portable one,
// and an exponential that the compiler can turn into vector code.
#pragma once
#include <bit>
#include <cstdint>

// ThreadSanitizer's runtime is not up yet when the loader chooses between the builds of a function.
#if defined(__SANITIZE_THREAD__)
#define SHARDCOMM_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SHARDCOMM_THREAD_SANITIZER 1
#endif
#endif

// On a function: compiled twice, the better one chosen when the program is loaded.
#if defined(__x86_64__) && defined(__linux__) && !defined(SHARDCOMM_THREAD_SANITIZER)
#define SHARDCOMM_VECTOR [[gnu::target_clones("arch=x86-64-v3", "default")]]
#else
#define SHARDCOMM_VECTOR
#endif

namespace shardcomm::trainer {

// e^x within 2 units in the last place for x in [-87, 88]; clamped outside, so never zero or infinite. NaN stays NaN.
// 2^n from the exponent bits, e^r for |r| <= ln 2 / 2 by the polynomial of Cephes' expf (Moshier).
[[gnu::always_inline]] inline float fast_exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the integer n ends up in the low mantissa bits
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts, the first exact times n
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float e = p * r * r + r + 1.0f;
  const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + 0x3f800000u);
  return e * power;
}

// tanh x = 1 - 2 / (1 + e^2x); absolute error below 3e-7.
[[gnu::always_inline]] inline float fast_tanh(float x) { return 1.0f - 2.0f / (1.0f + fast_exp(2.0f * x)); }

}  // namespace shardcomm::trainer
