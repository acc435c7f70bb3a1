// Reductions whose result is multiplied before it is rounded: every type that has a scale, every op, every way that the
// bytes can take, and ranks that do not agree on it.
#include <cmath>

#include "tests/support/failure.h"
#include "tests/support/reference.h"

namespace shardcomm::testing {
namespace {

struct Way {
  std::string_view name;
  RankMode mode;
  int ranks;
  const char* options;
  size_t count;  // elements a shard
};

void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

constexpr Way kWays[] = {
    {"alone", RankMode::kThreads, 1, "", 37},
    {"inline", RankMode::kThreads, 3, "", 37},
    {"direct", RankMode::kThreads, 3, "algorithm=direct", 1003},
    {"attached", RankMode::kProcesses, 2, "memory_access=attach,algorithm=direct", 4099},
    {"staged", RankMode::kProcesses, 4, "memory_access=staging,algorithm=direct,staging_bytes=70000", 4099},
};

class Scale : public ::testing::TestWithParam<Way> {};

TEST_P(Scale, MultipliesTheResultOfEveryReduction) {
  const Way& way = GetParam();
  const uint64_t seed = test_seed();
  run_ranks(way.ranks, way.mode, [&](RankContext& rank) {
    Communicator comm = rank.communicator(way.options);
    const auto n = static_cast<size_t>(way.ranks), me = static_cast<size_t>(rank.rank());
    const size_t all = n * way.count;
    for (int d = 0; d < kDTypeCount; ++d) {
      const auto dtype = static_cast<DType>(d);
      if (!has_scale(dtype)) continue;
      const size_t size = size_of(dtype);
      std::vector<std::vector<std::byte>> inputs(n, std::vector<std::byte>(all * size));
      std::vector<const std::byte*> sources;
      for (size_t r = 0; r < n; ++r) {
        fill_elements(inputs[r].data(), seed, static_cast<Rank>(r), 0, all, dtype);
        sources.push_back(inputs[r].data());
      }
      for (int o = 0; o < kReduceOpCount; ++o) {
        const auto op = static_cast<ReduceOp>(o);
        if (!supports(dtype, op)) continue;
        const double scale = o % 2 == 0 ? 1.0 / 3 : -0.25;
        std::vector<std::byte> expected(all * size), out(all * size);
        reduce_elements(expected.data(), sources, all, dtype, op, scale);
        const std::byte* const in = inputs[me].data();
        const auto expect_equal = [&](const Result<Work>& work, size_t first, size_t count, std::string_view what) {
          ASSERT_TRUE(outcome(work).ok()) << outcome(work).to_string();
          const auto wrong = first_difference(out.data(), expected.data() + first * size, count, dtype);
          ASSERT_EQ(wrong, std::nullopt) << what << " " << name(op) << " of " << name(dtype) << ", seed " << seed;
        };
        const StreamRef here = StreamRef::caller();
        expect_equal(comm.all_reduce(
                         {.in = in, .out = out.data(), .count = all, .dtype = dtype, .op = op, .scale = scale}, here),
                     0, all, "all_reduce");
        expect_equal(
            comm.reduce_scatter(
                {.full = in, .shard = out.data(), .count = way.count, .dtype = dtype, .op = op, .scale = scale}, here),
            me * way.count, way.count, "reduce_scatter");
        const ReduceItem items[] = {{in, out.data(), way.count, dtype, op, scale}};
        expect_equal(comm.reduce_scatter_many(items, here), me * way.count, way.count, "reduce_scatter_many");
        PreparedCall prepared = comm.prepare_reduce(items).value();
        expect_equal(prepared.run(here), me * way.count, way.count, "prepare_reduce");
        const AllReduceItem whole[] = {{in, out.data(), all, dtype, op, scale}};
        expect_equal(comm.all_reduce_many(whole, here), 0, all, "all_reduce_many");
        const std::vector<size_t> counts(n, way.count);
        expect_equal(
            comm.reduce_scatter_v(
                {.full = in, .shard = out.data(), .counts = counts, .dtype = dtype, .op = op, .scale = scale}, here),
            me * way.count, way.count, "reduce_scatter_v");
        const Result<Work> to_root = comm.reduce(
            {.in = in, .out = out.data(), .count = all, .dtype = dtype, .op = op, .root = 0, .scale = scale}, here);
        if (me == 0) expect_equal(to_root, 0, all, "reduce");
        ASSERT_TRUE(outcome(to_root).ok());
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, Scale, ::testing::ValuesIn(kWays),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Scales, ThatHaveNoMeaningAreRefused) {
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    std::vector<double> memory(8);
    const auto reduce = [&](DType dtype, double scale) {
      return comm
          .all_reduce({.in = memory.data(), .out = memory.data(), .count = 1, .dtype = dtype, .scale = scale},
                      StreamRef::caller())
          .status();
    };
    EXPECT_TRUE(failed_with(reduce(DType::kI32, 2), Code::kUnsupported, {"a scale of 2 for i32"}));
    EXPECT_TRUE(failed_with(reduce(DType::kBool, 0.5), Code::kUnsupported, {"bool"}));
    EXPECT_TRUE(failed_with(reduce(DType::kF32, NAN), Code::kInvalidArgument, {"not a finite number"}));
    EXPECT_TRUE(failed_with(reduce(DType::kComplex64, INFINITY), Code::kInvalidArgument, {"not a finite number"}));
    EXPECT_TRUE(reduce(DType::kI32, 1).ok());
  });
}

TEST(Scales, ThatDifferBetweenRanksAreAMismatch) {
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    float in = 1, out = 0;
    const Status status = outcome(comm.all_reduce(
        {.in = &in, .out = &out, .count = 1, .dtype = DType::kF32, .scale = rank.rank() == 0 ? 0.5 : 0.25},
        StreamRef::caller()));
    EXPECT_TRUE(failed_with(status, Code::kFailedPrecondition, {"all_reduce f32 1", "their scales differ"}));
  });
}

}  // namespace
}  // namespace shardcomm::testing
