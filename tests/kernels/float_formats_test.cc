// The small floating formats against their definitions: every pattern to f32; from f32 at and around every point where
// the rounding changes, and at random; for one number and for lanes of a vector.
#include "kernels/float_formats.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "tests/support/reference.h"

namespace shardcomm::kernels {
namespace {

template <class F, DType kType>
struct Format {
  using Conversion = F;
  static constexpr DType kDType = kType;
  static constexpr uint32_t kPatterns = 1u << F::kWidth;
  static constexpr uint32_t kSign = kPatterns / 2;
};

template <class F>
class FloatFormats : public ::testing::Test {};
using Formats = ::testing::Types<Format<F16, DType::kF16>, Format<BF16, DType::kBF16>, Format<F8E4M3, DType::kF8E4M3>,
                                 Format<F8E5M2, DType::kF8E5M2>>;

struct Names {
  template <class F>
  static std::string GetName(int) {
    return std::string(name(F::kDType));
  }
};
TYPED_TEST_SUITE(FloatFormats, Formats, Names);

using Lanes = Vector<uint32_t, 16>;

template <class F>
void expect_rounded(uint32_t bits) {
  const float value = std::bit_cast<float>(bits);
  const uint32_t got = F::Conversion::from_f32(bits);
  const bool is_nan = std::isnan(testing::decode_small(got, F::kDType));
  if (std::isnan(value)) {
    ASSERT_TRUE(is_nan) << std::hex << bits << " gives " << got;
    ASSERT_EQ(got & F::kSign, std::signbit(value) ? F::kSign : 0) << std::hex << bits;
  } else {
    ASSERT_EQ(got, testing::encode_small(value, F::kDType)) << value << " = 0x" << std::hex << bits;
  }
  ASSERT_EQ(F::Conversion::template from_f32<NanRule::kCanonical>(bits), is_nan ? F::kSign - 1 : got)
      << std::hex << bits;
  const Lanes lanes = F::Conversion::from_f32(Lanes{bits, 0, ~bits, bits});
  ASSERT_EQ(lanes[0], got);
  ASSERT_EQ(lanes[1], 0u);
  ASSERT_EQ(lanes[2], F::Conversion::from_f32(~bits));
  ASSERT_EQ(lanes[3], got);
}

TYPED_TEST(FloatFormats, EveryPatternWidensExactly) {
  using F = typename TypeParam::Conversion;
  for (uint32_t pattern = 0; pattern < TypeParam::kPatterns; ++pattern) {
    const uint32_t bits = F::to_f32(pattern);
    const double expected = testing::decode_small(pattern, TypeParam::kDType);
    const float got = std::bit_cast<float>(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << std::hex << pattern;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(static_cast<float>(expected)), bits) << std::hex << pattern;
    }
    ASSERT_EQ(std::signbit(got), (pattern & TypeParam::kSign) != 0) << std::hex << pattern;
    const Lanes lanes = F::to_f32(Lanes{pattern, 0, 1, pattern});
    ASSERT_EQ(lanes[0], bits);
    ASSERT_EQ(lanes[1], 0u);
    ASSERT_EQ(lanes[2], F::to_f32(1u));
    ASSERT_EQ(lanes[3], bits);
  }
}

TYPED_TEST(FloatFormats, EveryPatternComesBack) {
  using F = typename TypeParam::Conversion;
  for (uint32_t pattern = 0; pattern < TypeParam::kPatterns; ++pattern) {
    const uint32_t back = F::from_f32(F::to_f32(pattern));
    if (!std::isnan(testing::decode_small(pattern, TypeParam::kDType))) {
      ASSERT_EQ(back, pattern) << std::hex << pattern;
      continue;
    }
    // A NaN comes back quiet, otherwise as it was.
    const uint32_t changed = back ^ pattern;
    ASSERT_EQ(std::popcount(changed) <= 1 && (changed & back) == changed, true) << std::hex << pattern << " " << back;
  }
}

// Neighbours in the format, their midpoint, and the f32 values next to each of the three; both signs. The midpoint
// beyond the largest finite value is among them, and so is the one below the smallest subnormal.
TYPED_TEST(FloatFormats, RoundsToNearestEvenAroundEveryMidpoint) {
  using F = typename TypeParam::Conversion;
  for (uint32_t pattern = 0; pattern + 1 < TypeParam::kSign; ++pattern) {
    const float low = std::bit_cast<float>(F::to_f32(pattern));
    if (!std::isfinite(low)) break;
    float high = std::bit_cast<float>(F::to_f32(pattern + 1));
    if (!std::isfinite(high)) high = low + (low - std::bit_cast<float>(F::to_f32(pattern - 1)));
    const float middle = low + (high - low) / 2;
    for (const float value : {low, middle, high}) {
      const auto bits = std::bit_cast<uint32_t>(value);
      for (const uint32_t near : {bits == 0 ? 0 : bits - 1, bits, bits + 1}) {
        ASSERT_NO_FATAL_FAILURE(expect_rounded<TypeParam>(near));
        ASSERT_NO_FATAL_FAILURE(expect_rounded<TypeParam>(near | 0x80000000u));
      }
    }
  }
}

TYPED_TEST(FloatFormats, RoundsRandomNumbers) {
  const uint64_t seed = testing::test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (uint64_t i = 0; i < 200'000; ++i) {
    const uint64_t random = testing::random_bits(seed, i);
    ASSERT_NO_FATAL_FAILURE(expect_rounded<TypeParam>(static_cast<uint32_t>(random)));
    // Also near the format's own range.
    const auto exponent = static_cast<uint32_t>(127 - 28 + random % 48);
    const auto bits = static_cast<uint32_t>(random >> 32) & 0x807fffffu;
    ASSERT_NO_FATAL_FAILURE(expect_rounded<TypeParam>(bits | exponent << 23));
  }
}

TEST(FloatFormatsByHand, ConvertKnownPatterns) {
  static_assert(F16::to_f32(0x3c00u) == 0x3f800000u);  // at compile time too
  EXPECT_EQ(F16::from_f32(0x3f800000u), 0x3c00u);      // 1
  EXPECT_EQ(F16::from_f32(0x477fefffu), 0x7bffu);      // just below 65520
  EXPECT_EQ(F16::from_f32(0x477ff000u), 0x7c00u);      // 65520: infinity
  EXPECT_EQ(F16::to_f32(0x0001u), 0x33800000u);        // 2^-24
  EXPECT_EQ(F16::to_f32(0xfd55u), 0xffeaa000u);        // a signalling NaN: quiet, with its payload
  EXPECT_EQ(F16::from_f32(0xffeaa000u), 0xff55u);
  EXPECT_EQ(BF16::from_f32(0x3f808000u), 0x3f80u);  // a tie, to even
  EXPECT_EQ(BF16::from_f32(0x3f818000u), 0x3f82u);
  EXPECT_EQ(BF16::from_f32(0x7f7fffffu), 0x7f80u);  // the largest f32: infinity
  EXPECT_EQ(BF16::from_f32(0x7f800001u), 0x7fc0u);  // a NaN whose payload is cut off
  EXPECT_EQ(F8E4M3::from_f32(0x43e80000u), 0x7eu);  // 464, a tie: 448
  EXPECT_EQ(F8E4M3::from_f32(0x43e80001u), 0x7fu);
  EXPECT_EQ(F8E4M3::from_f32(0xff800000u), 0xffu);  // no infinities: NaN
  EXPECT_EQ(F8E4M3::to_f32(0x01u), 0x3b000000u);    // 2^-9
  EXPECT_EQ(F8E5M2::from_f32(0x476fffffu), 0x7bu);  // just below 61440: 57344
  EXPECT_EQ(F8E5M2::from_f32(0x47700000u), 0x7cu);  // infinity
  EXPECT_EQ(F8E5M2::to_f32(0x01u), 0x37800000u);    // 2^-16
}

}  // namespace
}  // namespace shardcomm::kernels
