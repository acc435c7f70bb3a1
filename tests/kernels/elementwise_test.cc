// Element-wise launches: in the order of their stream, at any alignment and size, on values that are easy to get wrong.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <future>
#include <limits>
#include <random>
#include <vector>

#include "kernels/kernels.h"

namespace shardcomm::kernels {
namespace {

const StreamRef kCaller = StreamRef::caller();

void must(const Status& status) { ASSERT_TRUE(status.ok()) << status.to_string(); }
Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }

float widened(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// To nearest, ties to even, by definition: of the two neighbours the nearer one, or the one with an even pattern.
uint16_t nearest_bf16(float value) {
  const auto below = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  const auto above = static_cast<uint16_t>(below + 1);
  const double low = static_cast<double>(widened(below)), v = static_cast<double>(value);
  // Beyond the largest finite number the next pattern stands for 2^128, as IEEE 754 rounds.
  const double high = std::isinf(widened(above)) ? std::copysign(0x1p128, v) : static_cast<double>(widened(above));
  const double down = std::abs(v - low), up = std::abs(high - v);
  return down < up || (down == up && below % 2 == 0) ? below : above;
}

// Each launch reads what the one before it wrote, and none runs before the stream gets there.
TEST(Elementwise, RunsInStreamOrder) {
  constexpr size_t kCount = 1003;
  HostStream stream = HostStream::create("elementwise").value();
  std::promise<void> opened;
  std::vector<float> wide(kCount, 7), sum(kCount, 7), m(kCount), v(kCount), master(kCount, 3);
  std::vector<uint16_t> narrow(kCount, 0x4711);
  uint32_t largest = 0;
  SquareSum squares{};
  const uint32_t three = std::bit_cast<uint32_t>(3.0f);
  must(stream.ref().enqueue([gate = opened.get_future().share()] { gate.wait(); }));

  must(launch(FillLaunch{.target = sum.data(), .bytes = kCount * sizeof(float)}, stream.ref()));        // 0
  must(launch(FillLaunch{.target = narrow.data(), .value = 0x3f, .bytes = 2 * kCount}, stream.ref()));  // 0.74609375
  must(launch(AccumulateLaunch{sum.data(), narrow.data(), DType::kBF16, kCount}, stream.ref()));
  must(launch(AccumulateLaunch{sum.data(), sum.data(), DType::kF32, 0}, stream.ref()));
  must(launch(CastLaunch{sum.data(), DType::kF32, wide.data(), DType::kF32, kCount}, stream.ref()));
  must(launch(AccumulateLaunch{sum.data(), wide.data(), DType::kF32, kCount}, stream.ref()));  // twice that
  must(launch(CastLaunch{sum.data(), DType::kF32, narrow.data(), DType::kBF16, kCount}, stream.ref()));
  must(launch(CastLaunch{narrow.data(), DType::kBF16, wide.data(), DType::kF32, kCount}, stream.ref()));
  const AdamConstants constants{.beta1 = 0,
                                .beta2 = 0,
                                .eps = 0,
                                .learning_rate = 1,
                                .gradient_scale = 1,
                                .first_correction = 1,
                                .second_correction = 1};
  must(launch(AdamLaunch{constants, 0, wide.data(), m.data(), v.data(), master.data(), kCount}, stream.ref()));
  must(launch(LargestMagnitudeLaunch{master.data(), kCount, &largest}, stream.ref()));
  must(launch(SquareSumLaunch{master.data(), kCount, three, &squares}, stream.ref()));

  EXPECT_EQ(sum, std::vector<float>(kCount, 7));  // nothing has run
  EXPECT_EQ(master, std::vector<float>(kCount, 3));
  EXPECT_EQ(largest, 0u);
  opened.set_value();
  must(stream.ref().synchronize(soon()));
  EXPECT_EQ(sum, std::vector<float>(kCount, 2 * widened(0x3f3f)));
  EXPECT_EQ(wide, std::vector<float>(kCount, 2 * widened(0x3f3f)));
  EXPECT_EQ(m, wide);
  EXPECT_EQ(master, std::vector<float>(kCount, 2));  // a first step is the rate against the gradient's sign
  EXPECT_EQ(std::bit_cast<float>(largest), 2.0f);
  EXPECT_NEAR(norm_of(squares, three), 2 * std::sqrt(static_cast<double>(kCount)), 1e-9);
}

TEST(Elementwise, RunsAtOnceOnTheCallerStream) {
  float value = 1;
  must(launch(FillLaunch{.target = &value, .bytes = sizeof value}, kCaller));
  EXPECT_EQ(value, 0);
}

// `args` are copied: they may be gone when the stream gets there.
TEST(Elementwise, CopiesItsArguments) {
  HostStream stream = HostStream::create("elementwise").value();
  std::vector<float> sum(64), term(64, 1);
  std::promise<void> opened;
  must(stream.ref().enqueue([gate = opened.get_future().share()] { gate.wait(); }));
  auto args = std::make_unique<AccumulateLaunch>(AccumulateLaunch{sum.data(), term.data(), DType::kF32, 64});
  must(launch(*args, stream.ref()));
  args->count = 0;
  args.reset();
  opened.set_value();
  must(stream.ref().synchronize(soon()));
  EXPECT_EQ(sum, term);
}

TEST(Elementwise, RoundsToNearestEvenInBf16) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<float> values;
  for (uint32_t pattern = 0; pattern < 0x10000u; ++pattern) {
    for (const uint32_t rest :
         {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu, static_cast<uint32_t>(random() & 0xffffu)}) {
      values.push_back(std::bit_cast<float>(pattern << 16 | rest));
    }
  }
  std::vector<uint16_t> rounded(values.size());
  std::vector<float> back(values.size());
  must(launch(CastLaunch{values.data(), DType::kF32, rounded.data(), DType::kBF16, values.size()}, kCaller));
  must(launch(CastLaunch{rounded.data(), DType::kBF16, back.data(), DType::kF32, values.size()}, kCaller));
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(back[i]), static_cast<uint32_t>(rounded[i]) << 16);
    if (std::isnan(values[i])) {
      const auto bits = std::bit_cast<uint32_t>(values[i]);
      ASSERT_EQ(rounded[i], bits >> 16 | 0x40u) << std::hex << bits;  // its sign and payload, quiet
    } else if (std::isinf(values[i])) {
      ASSERT_EQ(back[i], values[i]);
    } else {
      ASSERT_EQ(rounded[i], nearest_bf16(values[i])) << values[i];
    }
  }
}

// Any start and length, bit for bit what the whole range gives, and nothing beyond.
TEST(Elementwise, GivesTheSameBitsInEverySplit) {
  constexpr size_t kCount = 517;
  std::mt19937 random(1234);
  std::normal_distribution<float> normal;
  std::vector<float> start(kCount), term(kCount);
  std::vector<uint16_t> narrow(kCount);
  for (size_t i = 0; i < kCount; ++i) start[i] = normal(random), term[i] = normal(random);
  must(launch(CastLaunch{term.data(), DType::kF32, narrow.data(), DType::kBF16, kCount}, kCaller));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const void* terms = dtype == DType::kF32 ? static_cast<const void*>(term.data()) : narrow.data();
    std::vector<float> whole = start;
    must(launch(AccumulateLaunch{whole.data(), terms, dtype, kCount}, kCaller));
    for (size_t i = 0; i < kCount; ++i)
      ASSERT_EQ(whole[i], start[i] + (dtype == DType::kF32 ? term[i] : widened(narrow[i])));
    for (const size_t piece : {1u, 3u, 8u, 17u, 100u}) {
      std::vector<float> pieces = start;
      for (size_t i = 0; i < kCount; i += piece) {
        const auto* from = static_cast<const std::byte*>(terms) + i * size_of(dtype);
        must(launch(AccumulateLaunch{&pieces[i], from, dtype, std::min(piece, kCount - i)}, kCaller));
      }
      EXPECT_EQ(pieces, whole) << name(dtype) << " in pieces of " << piece;
    }
  }
}

TEST(Elementwise, RefusesOtherDtypesAndCudaStreams) {
  float a = 1, b = 2;
  const StreamRef cuda = StreamRef::cuda(nullptr, 0);
  EXPECT_EQ(launch(AccumulateLaunch{&a, &b, DType::kF16, 1}, kCaller).code(), Code::kUnsupported);
  EXPECT_EQ(launch(CastLaunch{&a, DType::kF32, &b, DType::kF64, 1}, kCaller).code(), Code::kUnsupported);
  EXPECT_EQ(launch(CastLaunch{&a, DType::kI32, &b, DType::kF32, 1}, kCaller).code(), Code::kUnsupported);
  EXPECT_EQ(launch(FillLaunch{.target = &a, .bytes = sizeof a}, cuda).code(), Code::kUnsupported);
  EXPECT_EQ(launch(AccumulateLaunch{&a, &b, DType::kF32, 1}, cuda).code(), Code::kUnsupported);
  EXPECT_EQ(launch(LargestMagnitudeLaunch{&a, 1, nullptr}, cuda).code(), Code::kUnsupported);
  EXPECT_EQ(a, 1);
  EXPECT_EQ(b, 2);
}

TEST(Elementwise, AcceptsNoElements) {
  must(launch(FillLaunch{.target = nullptr, .bytes = 0}, kCaller));
  must(launch(AccumulateLaunch{nullptr, nullptr, DType::kF32, 0}, kCaller));
  must(launch(CastLaunch{nullptr, DType::kF32, nullptr, DType::kF32, 0}, kCaller));
  must(launch(CastLaunch{nullptr, DType::kF32, nullptr, DType::kBF16, 0}, kCaller));
}

}  // namespace
}  // namespace shardcomm::kernels
