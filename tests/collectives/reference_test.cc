// The reference against the definitions of the number formats: what checks the library is itself checked.
#include "tests/support/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace shardcomm::testing {
namespace {

constexpr DType kSmall[] = {DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2};

// All finite values of a format that are not negative, in order: the index is the pattern.
std::vector<double> magnitudes(DType dtype) {
  std::vector<double> values;
  for (uint32_t bits = 0;; ++bits) {
    const double value = decode_small(bits, dtype);
    if (!std::isfinite(value)) return values;
    values.push_back(value);
  }
}

TEST(Reference, KnowsSomeNumbersByHeart) {
  EXPECT_EQ(decode_small(0x3c00, DType::kF16), 1.0);
  EXPECT_EQ(decode_small(0x0001, DType::kF16), 0x1p-24);
  EXPECT_EQ(decode_small(0x7bff, DType::kF16), 65504.0);
  EXPECT_EQ(decode_small(0xfc00, DType::kF16), -INFINITY);
  EXPECT_EQ(decode_small(0x3f80, DType::kBF16), 1.0);
  EXPECT_EQ(decode_small(0xc049, DType::kBF16), -3.140625);
  EXPECT_EQ(decode_small(0x38, DType::kF8E4M3), 1.0);
  EXPECT_EQ(decode_small(0x7e, DType::kF8E4M3), 448.0);
  EXPECT_TRUE(std::isnan(decode_small(0x7f, DType::kF8E4M3)));
  EXPECT_EQ(decode_small(0x01, DType::kF8E4M3), 0x1p-9);
  EXPECT_EQ(decode_small(0x3c, DType::kF8E5M2), 1.0);
  EXPECT_EQ(decode_small(0x7b, DType::kF8E5M2), 57344.0);
  EXPECT_EQ(decode_small(0x7c, DType::kF8E5M2), INFINITY);
  EXPECT_EQ(encode_small(65519.99f, DType::kF16), 0x7bffu);
  EXPECT_EQ(encode_small(65520.0f, DType::kF16), 0x7c00u);
  EXPECT_EQ(encode_small(464.0f, DType::kF8E4M3), 0x7eu);  // a tie, to the even 448
  EXPECT_EQ(encode_small(465.0f, DType::kF8E4M3), 0x7fu);
}

TEST(Reference, DecodesAndEncodesEveryNumber) {
  for (DType dtype : kSmall) {
    for (uint32_t bits = 0; bits < 1u << (8 * size_of(dtype)); ++bits) {
      const double value = decode_small(bits, dtype);
      if (std::isnan(value)) continue;
      ASSERT_EQ(encode_small(static_cast<float>(value), dtype), bits) << name(dtype);
    }
  }
}

// By the definition of rounding: the nearest number, and of two equally near the one with an even pattern.
TEST(Reference, RoundsToTheNearestEven) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  for (DType dtype : kSmall) {
    const std::vector<double> values = magnitudes(dtype);
    const double step = values.back() - values[values.size() - 2];
    for (uint64_t k = 0; k < 200'000; ++k) {
      const uint64_t bits = random_bits(test_seed(), k);
      float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
      if (k % 4 == 0)
        value = std::ldexp(static_cast<float>(bits % 4096) / 4096, static_cast<int>(bits >> 32 & 31) - 20);
      const size_t at = bits % (values.size() - 1);
      if (k % 4 == 1) value = static_cast<float>((values[at] + values[at + 1]) / 2);  // a tie, where f32 can say it
      if (!std::isfinite(value)) continue;
      const double magnitude = std::fabs(value);
      const auto above =
          static_cast<size_t>(std::lower_bound(values.begin(), values.end(), magnitude) - values.begin());
      size_t expected = above;
      if (above == values.size()) {
        expected = magnitude - values.back() < step / 2 ? above - 1 : above;  // a tie goes to the even one of the two
        if (magnitude - values.back() == step / 2) expected = above - above % 2;
      } else if (above > 0 && values[above] != magnitude) {
        const double up = values[above] - magnitude, down = magnitude - values[above - 1];
        expected = down < up || (down == up && above % 2 == 1) ? above - 1 : above;
      }
      const uint32_t sign = std::signbit(value) ? 1u << (8 * size_of(dtype) - 1) : 0;
      ASSERT_EQ(encode_small(value, dtype), sign | expected) << name(dtype) << " of " << value;
    }
  }
}

TEST(Reference, SumsInRankOrderWithOneRounding) {
  const auto bf16 = [](float value) { return static_cast<uint16_t>(encode_small(value, DType::kBF16)); };
  // 1 + 2^-9 + 2^-9: rounding at each step would lose both halves.
  const uint16_t inputs[3] = {bf16(1.0f), bf16(0x1p-8f), bf16(0x1.8p-8f)};
  const std::byte* sources[3];
  for (size_t i = 0; i < 3; ++i) sources[i] = reinterpret_cast<const std::byte*>(&inputs[i]);
  uint16_t sum = 0;
  reduce_elements(reinterpret_cast<std::byte*>(&sum), sources, 1, DType::kBF16, ReduceOp::kSum);
  EXPECT_EQ(decode_small(sum, DType::kBF16), 1.0078125);

  const float order[3] = {0x1p24f, 1.0f, 1.0f};  // from the right it would be 2^24 + 2
  for (size_t i = 0; i < 3; ++i) sources[i] = reinterpret_cast<const std::byte*>(&order[i]);
  float f32_sum = 0;
  reduce_elements(reinterpret_cast<std::byte*>(&f32_sum), sources, 1, DType::kF32, ReduceOp::kSum);
  EXPECT_EQ(f32_sum, 0x1p24f);
}

TEST(Reference, IntegersWrapAndCompareBySign) {
  const int8_t values[2] = {100, -100};
  const std::byte* sources[2] = {reinterpret_cast<const std::byte*>(&values[0]),
                                 reinterpret_cast<const std::byte*>(&values[0])};
  int8_t result = 0;
  const auto target = reinterpret_cast<std::byte*>(&result);
  reduce_elements(target, sources, 1, DType::kI8, ReduceOp::kSum);
  EXPECT_EQ(result, -56);
  sources[1] = reinterpret_cast<const std::byte*>(&values[1]);
  reduce_elements(target, sources, 1, DType::kI8, ReduceOp::kMax);
  EXPECT_EQ(result, 100);
  reduce_elements(target, sources, 1, DType::kU8, ReduceOp::kMax);
  EXPECT_EQ(result, -100);
}

}  // namespace
}  // namespace shardcomm::testing
