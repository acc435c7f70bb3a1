// The arithmetic under the ZeRO engine, against f64 and against itself under other splits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "zero/adam.h"
#include "zero/bf16.h"
#include "zero/norm.h"

namespace shardcomm::zero {
namespace {

class ZeroArithmetic : public ::testing::Test {
 protected:
  const unsigned seed = std::random_device{}();
  ::testing::ScopedTrace trace{__FILE__, __LINE__, "seed " + std::to_string(seed)};
  std::mt19937 random{seed};

  std::vector<float> values(size_t count, float scale = 1) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> result(count);
    for (float& value : result) value = normal(random);
    return result;
  }
};

// Over `parts` ranks, each adding its elements piece by piece.
double norm_in_parts(std::span<const float> values, size_t parts, size_t piece) {
  uint32_t largest = 0;
  for (const float value : values) largest = std::max(largest, largest_magnitude({&value, 1}));
  SquareSum all{};
  for (size_t part = 0; part < parts; ++part) {
    SquareSum own{};
    const size_t begin = values.size() * part / parts, end = values.size() * (part + 1) / parts;
    for (size_t i = begin; i < end; i += piece) add_squares(values.subspan(i, std::min(piece, end - i)), largest, own);
    for (size_t i = 0; i < all.size(); ++i) all[i] += own[i];
  }
  return norm_of(all, largest);
}

double reference_norm(std::span<const float> values) {
  long double sum = 0;
  for (const float value : values) sum += static_cast<long double>(value) * value;
  return static_cast<double>(std::sqrt(sum));
}

TEST_F(ZeroArithmetic, NormHasTheSameBitsInEverySplitAndOrder) {
  for (const float scale : {1.0f, 1e-30f, 1e30f, 1e-42f}) {
    auto v = values(20011, scale);
    const double whole = norm_in_parts(v, 1, v.size());
    EXPECT_NEAR(whole / reference_norm(v), 1, 1e-13) << "scale " << scale;
    for (const size_t parts : {2u, 3u, 7u, 64u}) {
      for (const size_t piece : {1u, 17u, 5000u}) ASSERT_EQ(norm_in_parts(v, parts, piece), whole);
    }
    std::shuffle(v.begin(), v.end(), random);
    EXPECT_EQ(norm_in_parts(v, 5, 1000), whole);
  }
}

TEST_F(ZeroArithmetic, NormCountsSmallElementsBesideALargeOne) {
  std::vector<float> v(1 << 20, 1e-5f);
  v[12345] = 1;
  EXPECT_NEAR(norm_in_parts(v, 3, 4096) / reference_norm(v), 1, 1e-9);
}

TEST_F(ZeroArithmetic, NormOfSpecialValues) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(norm_in_parts({}, 2, 1), 0);
  EXPECT_EQ(norm_in_parts(std::vector<float>{0, -0.0f, 0}, 2, 1), 0);
  EXPECT_EQ(norm_in_parts(std::vector<float>{-3}, 1, 1), 3);
  EXPECT_EQ(norm_in_parts(std::vector<float>{3, -4}, 2, 1), 5);
  EXPECT_EQ(norm_in_parts(std::vector<float>{1, -kInfinity, 2}, 2, 1), static_cast<double>(kInfinity));
  EXPECT_TRUE(std::isnan(norm_in_parts(std::vector<float>{1, kNan, kInfinity}, 2, 1)));
  constexpr float kLargest = std::numeric_limits<float>::max();
  EXPECT_EQ(norm_in_parts(std::vector<float>{kLargest}, 1, 1), static_cast<double>(kLargest));
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(norm_in_parts(std::vector<float>{kSmallest}, 1, 1), static_cast<double>(kSmallest));
}

TEST_F(ZeroArithmetic, NormSumsBeyondOneWord) {
  std::vector<float> v(100'000, 1.9999999f);
  EXPECT_NEAR(norm_in_parts(v, 8, 99'999) / reference_norm(v), 1, 1e-13);
}

TEST_F(ZeroArithmetic, AdamFollowsItsDefinition) {
  const AdamWOptions options{.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};
  const size_t count = 37;
  const auto start = values(count);
  std::vector<float> m(count), v(count), master = start;
  std::vector<double> m64(count), v64(count), p64(start.begin(), start.end());
  const double b1 = static_cast<double>(options.beta1), b2 = static_cast<double>(options.beta2);
  for (uint64_t step = 1; step <= 50; ++step) {
    const auto g = values(count, 0.3f);
    const float rate = 0.01f / static_cast<float>(step), scale = 0.7f, decay = options.weight_decay * 0.5f;
    adam_update(adam_constants(options, step, rate, scale), decay, g.data(), m.data(), v.data(), master.data(), count);
    for (size_t i = 0; i < count; ++i) {
      const double gradient = static_cast<double>(g[i]) * static_cast<double>(scale);
      m64[i] = b1 * m64[i] + (1 - b1) * gradient;
      v64[i] = b2 * v64[i] + (1 - b2) * gradient * gradient;
      const double m_hat = m64[i] / (1 - std::pow(b1, step)), v_hat = v64[i] / (1 - std::pow(b2, step));
      p64[i] -= static_cast<double>(rate) *
                (m_hat / (std::sqrt(v_hat) + static_cast<double>(options.eps)) + static_cast<double>(decay) * p64[i]);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    EXPECT_NEAR(static_cast<double>(master[i]), p64[i], 1e-6 * (1 + std::abs(p64[i])));
    EXPECT_NEAR(static_cast<double>(v[i]), v64[i], 1e-6 * v64[i]);
  }
}

TEST_F(ZeroArithmetic, AdamHasTheSameBitsInEverySplit) {
  const AdamConstants constants = adam_constants({}, 3, 1e-3f, 0.9f);
  const size_t count = 1003;
  const auto g = values(count), m0 = values(count), p0 = values(count);
  auto v0 = values(count);
  for (float& value : v0) value *= value;
  auto m = m0, v = v0, p = p0;
  adam_update(constants, 0.1f, g.data(), m.data(), v.data(), p.data(), count);
  for (const size_t piece : {1u, 2u, 3u, 7u, 64u, 501u}) {
    auto m2 = m0, v2 = v0, p2 = p0;
    for (size_t i = 0; i < count; i += piece) {
      const size_t n = std::min(piece, count - i);
      adam_update(constants, 0.1f, g.data() + i, m2.data() + i, v2.data() + i, p2.data() + i, n);
    }
    ASSERT_EQ(p2, p);
    ASSERT_EQ(m2, m);
    ASSERT_EQ(v2, v);
  }
}

TEST_F(ZeroArithmetic, Bf16RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const float value = float_of_bf16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(float_of_bf16(bf16_of_float(value))));
    } else {
      ASSERT_EQ(bf16_of_float(value), bits);
    }
  }
  EXPECT_EQ(bf16_of_float(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // a tie, to even
  EXPECT_EQ(bf16_of_float(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(bf16_of_float(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(bf16_of_float(std::numeric_limits<float>::max()), 0x7f80);  // infinity, as IEEE rounding says
  EXPECT_TRUE(std::isnan(float_of_bf16(bf16_of_float(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace shardcomm::zero
