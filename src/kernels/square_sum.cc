// The sum of squares that has the same bits in every order; kernels/elementwise.h says how.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/enqueue.h"
#include "kernels/kernels.h"

namespace shardcomm::kernels {
namespace {

constexpr uint32_t kInfinity = 0x7f800000u;
constexpr uint32_t kMagnitude = 0x7fffffffu;
constexpr int kMagnitudeBits = 26;      // values are scaled below 2^26, squares below 2^52
constexpr size_t kTermsPerWord = 4096;  // of 52 bits each, in 64

__extension__ using Wide = unsigned __int128;

// The largest magnitude is below two to this power, and not below half of it.
int exponent_above(uint32_t largest) noexcept {
  int exponent = 0;
  std::frexp(static_cast<double>(std::bit_cast<float>(largest)), &exponent);
  return exponent;
}

// Adding 2^52 to a number below it leaves, rounded to nearest even, its integer part in the low bits of the mantissa.
// The product of two f32 is exact in f64, so there is one rounding, whether or not the compiler fuses the operations.
uint64_t sum_of_rounded_squares(const float* values, size_t count, double scale) noexcept {
  constexpr double kMagic = 0x1p52;
  const uint64_t magic_bits = std::bit_cast<uint64_t>(kMagic);
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) {
    const double scaled = static_cast<double>(values[i]) * scale;
    sum += std::bit_cast<uint64_t>(scaled * scaled + kMagic) - magic_bits;
  }
  return sum;
}

void find_largest(const LargestMagnitudeLaunch& args) noexcept {
  uint32_t largest = *args.largest;
  for (size_t i = 0; i < args.count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(args.values[i]) & kMagnitude);
  }
  *args.largest = largest;
}

void add_squares(const SquareSumLaunch& args) noexcept {
  if (args.largest == 0 || args.largest >= kInfinity) return;
  const double scale = std::ldexp(1.0, kMagnitudeBits - exponent_above(args.largest));
  Wide total = 0;
  for (size_t begin = 0; begin < args.count; begin += kTermsPerWord) {
    total += sum_of_rounded_squares(args.values + begin, std::min(kTermsPerWord, args.count - begin), scale);
  }
  for (uint64_t& word : *args.sum) {
    word += static_cast<uint32_t>(total);
    total >>= 32;
  }
}

}  // namespace

Status launch(const LargestMagnitudeLaunch& args, StreamRef stream) {
  return enqueue(args, stream, find_largest, "largest magnitude");
}

Status launch(const SquareSumLaunch& args, StreamRef stream) {
  return enqueue(args, stream, add_squares, "sum of squares");
}

double norm_of(const SquareSum& sum, uint32_t largest) noexcept {
  if (largest > kInfinity) return std::numeric_limits<double>::quiet_NaN();
  if (largest == kInfinity) return std::numeric_limits<double>::infinity();
  if (largest == 0) return 0;
  Wide total = 0;
  for (size_t i = sum.size(); i-- > 0;) total = (total << 32) + sum[i];
  return std::ldexp(std::sqrt(static_cast<double>(total)), exponent_above(largest) - kMagnitudeBits);
}

}  // namespace shardcomm::kernels
