// The building blocks of the trainer's model where they promise more than the whole model's test can see.
#include "tools/trainer/layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tools/trainer/matmul.h"
#include "tools/trainer/vector.h"

namespace shardcomm::trainer {
namespace {

TEST(Vector, ExponentialIsWithinTwoUnits) {
  double worst = 0;
  for (float x = -87; x <= 88; x += 0.00137f) {
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::fabs(static_cast<double>(fast_exp(x)) - exact) / exact);
  }
  EXPECT_LT(worst, 2 * 0x1p-23);
  EXPECT_EQ(fast_exp(0), 1);
  EXPECT_TRUE(std::isfinite(fast_exp(INFINITY)));
  EXPECT_GT(fast_exp(-INFINITY), 0);
  EXPECT_LT(fast_exp(-INFINITY), 1e-37f);
  EXPECT_TRUE(std::isnan(fast_exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Vector, HyperbolicTangentIsClose) {
  for (float x = -50; x <= 50; x += 0.0013f) ASSERT_NEAR(fast_tanh(x), std::tanh(static_cast<double>(x)), 3e-7) << x;
}

struct Operand {
  std::vector<float> data;
  MatrixView view;
};

Operand random_operand(size_t rows, size_t columns, bool transposed, std::mt19937_64& rng) {
  std::normal_distribution<float> normal;
  const size_t stride = (transposed ? rows : columns) + 3;
  Operand out{std::vector<float>((transposed ? columns : rows) * stride), {}};
  for (float& x : out.data) x = normal(rng);
  out.view = {out.data.data(), rows, columns, stride, transposed};
  return out;
}

double at(MatrixView m, size_t i, size_t j) {
  return static_cast<double>(m.transposed ? m.data[j * m.stride + i] : m.data[i * m.stride + j]);
}

TEST(Multiply, TakesEveryTranspositionStrideAndScale) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 rng(seed);
  for (const auto& [m, n, k] : {std::array<size_t, 3>{1, 1, 1}, {3, 17, 5}, {33, 7, 64}, {5, 1, 0}, {0, 4, 3}}) {
    for (int variant = 0; variant < 8; ++variant) {
      const Operand a = random_operand(m, k, variant & 1, rng);
      const Operand b = random_operand(k, n, variant & 2, rng);
      const size_t stride = n + 2;
      const bool keep = variant & 4;  // without it the old contents must not matter, whatever they are
      std::vector<float> c(m * stride, keep ? 0.5f : std::numeric_limits<float>::quiet_NaN());
      multiply(a.view, b.view, {c.data(), m, n, stride}, {-1.5f, keep ? 2.0f : 0.0f});
      for (size_t i = 0; i < m; ++i) {
        for (size_t j = 0; j < n; ++j) {
          double expected = keep ? 1.0 : 0.0;
          for (size_t l = 0; l < k; ++l) expected -= 1.5 * at(a.view, i, l) * at(b.view, l, j);
          ASSERT_NEAR(c[i * stride + j], expected, 1e-4) << m << " " << n << " " << k << " variant " << variant;
        }
        for (size_t j = n; j < stride; ++j) {
          const float gap = c[i * stride + j];
          ASSERT_TRUE(keep ? gap == 0.5f : std::isnan(gap)) << "wrote between the rows";
        }
      }
    }
  }
}

TEST(MultiplyDeathTest, ShapesMustFit) {
  float x[4] = {};
  EXPECT_DEATH(multiply(view(x, 2, 2), view(x, 1, 2), matrix(x, 2, 2)), "shapes do not fit");
}

TEST(CrossEntropy, LargeLogitsStayFinite) {
  float logits[] = {1000, -1000, 0, 5, 5, 5};
  const int32_t targets[] = {1, 2};
  const double loss = cross_entropy(3, targets, logits);
  EXPECT_NEAR(loss, 2000 + std::log(3.0), 1e-3);
  EXPECT_NEAR(logits[0], 1, 1e-6);
  EXPECT_NEAR(logits[1], -1, 1e-6);
  EXPECT_NEAR(logits[5], 1.0 / 3 - 1, 1e-6);
}

TEST(CrossEntropy, NotANumberIsNotHidden) {
  float logits[] = {0, std::numeric_limits<float>::quiet_NaN(), 1};
  const int32_t targets[] = {0};
  EXPECT_TRUE(std::isnan(cross_entropy(3, targets, logits)));
}

}  // namespace
}  // namespace shardcomm::trainer
