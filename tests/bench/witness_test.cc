// The bench's own witness: its values and expected results agree with the tests' reference, and what is wrong is
// counted.
#include <gtest/gtest.h>

#include "shardcomm/types.h"
#include "tests/support/reference.h"
#include "tools/bench/layout.h"
#include "tools/bench/values.h"

namespace shardcomm::testing {
namespace {

using tools::BenchLayout;
using tools::BenchSpec;
using tools::BenchValues;

constexpr size_t kCount = 700;  // more than two of the witness's blocks, and no multiple of one

std::vector<DType> all_dtypes() {
  std::vector<DType> all;
  for (int i = 0; i < kDTypeCount; ++i) all.push_back(static_cast<DType>(i));
  return all;
}

TEST(BenchValues, ReductionsAreThoseOfTheReference) {
  const uint64_t seed = test_seed();
  for (const DType dtype : all_dtypes()) {
    for (int op = 0; op < kReduceOpCount; ++op) {
      if (!supports(dtype, static_cast<ReduceOp>(op))) continue;
      const BenchValues values{.seed = seed, .dtype = dtype, .op = static_cast<ReduceOp>(op), .ranks = 5};
      std::vector<std::vector<std::byte>> inputs(5, std::vector<std::byte>(kCount * size_of(dtype)));
      std::vector<const std::byte*> sources;
      for (Rank rank = 0; rank < 5; ++rank) {
        std::byte* input = inputs[static_cast<size_t>(rank)].data();
        tools::fill_values(values, rank, 11, kCount, input);
        EXPECT_EQ(tools::count_wrong_values(values, rank, 11, kCount, input), 0u);
        sources.push_back(input);
      }
      std::vector<std::byte> sums(kCount * size_of(dtype));
      reduce_elements(sums.data(), sources, kCount, dtype, static_cast<ReduceOp>(op));
      EXPECT_EQ(tools::count_wrong_reductions(values, 11, kCount, sums.data()), 0u)
          << name(dtype) << " " << name(static_cast<ReduceOp>(op)) << " seed " << seed;
    }
  }
}

TEST(BenchValues, OneBitIsOneWrongElement) {
  const uint64_t seed = test_seed();
  for (const DType dtype : all_dtypes()) {
    const BenchValues values{.seed = seed, .dtype = dtype, .op = ReduceOp::kSum, .ranks = 1};
    std::vector<std::byte> elements(kCount * size_of(dtype));
    tools::fill_values(values, 0, 0, kCount, elements.data());
    for (size_t i = 0; i < elements.size(); i += 13) {
      for (int bit = 0; bit < 8; ++bit) {
        elements[i] ^= std::byte{1} << bit;
        EXPECT_EQ(tools::count_wrong_values(values, 0, 0, kCount, elements.data()), 1u) << name(dtype);
        EXPECT_EQ(tools::count_wrong_reductions(values, 0, kCount, elements.data()), 1u) << name(dtype);
        elements[i] ^= std::byte{1} << bit;
      }
    }
    const size_t many = dtype == DType::kBool ? kCount / 4 : kCount / 2;  // of two values, half are equal by chance
    EXPECT_GT(tools::count_wrong_values(values, 1, 0, kCount, elements.data()), many) << "another rank's";
    EXPECT_GT(tools::count_wrong_values(values, 0, 1, kCount, elements.data()), many) << "shifted by one";
  }
}

// Every element of an output is expected from somewhere, once.
TEST(BenchLayout, CoversTheOutputOnceAndKeepsToItsExtents) {
  for (int collective = 0; collective < kCollectiveCount; ++collective) {
    const auto kind = static_cast<Collective>(collective);
    if (kind == Collective::kBarrier) continue;
    for (const bool in_place : {false, true}) {
      if (in_place && !tools::allows_in_place(kind)) continue;
      BenchSpec spec;
      spec.collective = kind;
      spec.in_place = in_place;
      for (const size_t bytes : {1u, 8u, 64u, 1000u, 65536u, 123456u}) {
        for (const int ranks : {1, 2, 3, 8}) {
          for (Rank rank = 0; rank < ranks; ++rank) {
            SCOPED_TRACE(std::string(name(kind)) + " " + std::to_string(bytes) + " bytes, rank " +
                         std::to_string(rank) + " of " + std::to_string(ranks));
            const BenchLayout layout = tools::make_layout(spec, rank, ranks, bytes);
            std::vector<int> covered(layout.output_extent);
            size_t elements = 0;
            for (const tools::OutputRange& out : layout.outputs) {
              ASSERT_LE(out.at + out.count, layout.output_extent);
              ASSERT_LT(out.source, ranks);
              for (size_t i = 0; i < out.count; ++i) ++covered[out.at + i];
              elements += out.count;
            }
            for (const int times : covered) ASSERT_LE(times, 1);
            for (const tools::InputRange& in : layout.inputs) ASSERT_LE(in.at + in.count, layout.input_extent);
            ASSERT_TRUE(in_place || elements == layout.output_extent);
            ASSERT_EQ(layout.inputs.size(), layout.output_at.size());
            ASSERT_GE(layout.whole_count, 1u);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace shardcomm::testing
