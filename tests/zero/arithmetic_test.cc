// The arithmetic under the ZeRO engine, against f64 and against itself under other splits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "kernels/kernels.h"
#include "zero/adam.h"

namespace shardcomm::zero {
namespace {

using kernels::AdamConstants;
using kernels::SquareSum;

template <class Launch>
void run(const Launch& launch) {
  ASSERT_TRUE(kernels::launch(launch, StreamRef::caller()).ok());
}

float float_of_bf16(uint16_t bits) {
  float value = 0;
  run(kernels::CastLaunch{&bits, DType::kBF16, &value, DType::kF32, 1});
  return value;
}
uint16_t bf16_of_float(float value) {
  uint16_t bits = 0;
  run(kernels::CastLaunch{&value, DType::kF32, &bits, DType::kBF16, 1});
  return bits;
}

// m, v and master, of equal length.
struct AdamState {
  std::vector<float> m, v, master;
  bool operator==(const AdamState&) const = default;

  void update(const AdamConstants& constants, float decay, std::span<const float> gradient, size_t begin) {
    run(kernels::AdamLaunch{.constants = constants,
                            .decay = decay,
                            .gradient = gradient.data(),
                            .m = m.data() + begin,
                            .v = v.data() + begin,
                            .master = master.data() + begin,
                            .count = gradient.size()});
  }
};

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
  for (const float& value : values) run(kernels::LargestMagnitudeLaunch{&value, 1, &largest});
  SquareSum all{};
  for (size_t part = 0; part < parts; ++part) {
    SquareSum own{};
    const size_t begin = values.size() * part / parts, end = values.size() * (part + 1) / parts;
    for (size_t i = begin; i < end; i += piece) {
      run(kernels::SquareSumLaunch{&values[i], std::min(piece, end - i), largest, &own});
    }
    for (size_t i = 0; i < all.size(); ++i) all[i] += own[i];
  }
  return kernels::norm_of(all, largest);
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

TEST_F(ZeroArithmetic, NormIsExactForSpecialValues) {
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
  AdamState state{std::vector<float>(count), std::vector<float>(count), start};
  std::vector<double> m64(count), v64(count), p64(start.begin(), start.end());
  const double b1 = static_cast<double>(options.beta1), b2 = static_cast<double>(options.beta2);
  for (uint64_t step = 1; step <= 50; ++step) {
    const auto g = values(count, 0.3f);
    const float rate = 0.01f / static_cast<float>(step), scale = 0.7f, decay = options.weight_decay * 0.5f;
    state.update(adam_constants(options, step, rate, scale), decay, g, 0);
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
    EXPECT_NEAR(static_cast<double>(state.master[i]), p64[i], 1e-6 * (1 + std::abs(p64[i])));
    EXPECT_NEAR(static_cast<double>(state.v[i]), v64[i], 1e-6 * v64[i]);
  }
}

TEST_F(ZeroArithmetic, AdamHasTheSameBitsInEverySplit) {
  const AdamConstants constants = adam_constants({}, 3, 1e-3f, 0.9f);
  const size_t count = 1003;
  const auto g = values(count);
  AdamState start{values(count), values(count), values(count)};
  for (float& value : start.v) value *= value;
  AdamState whole = start;
  whole.update(constants, 0.1f, g, 0);
  for (const size_t piece : {1u, 2u, 3u, 7u, 64u, 501u}) {
    AdamState pieces = start;
    for (size_t i = 0; i < count; i += piece) {
      pieces.update(constants, 0.1f, std::span(g).subspan(i, std::min(piece, count - i)), i);
    }
    ASSERT_TRUE(pieces == whole) << "pieces of " << piece;
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
