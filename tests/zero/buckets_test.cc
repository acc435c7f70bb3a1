// bucket_bytes is what one collective of a ZeRO engine moves: counted, measured and named.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "shardcomm/trace.h"
#include "tests/support/rank_group.h"
#include "tests/zero/counts.h"
#include "tests/zero/model.h"

namespace shardcomm::testing {
namespace {

const StreamRef kCaller = StreamRef::caller();
Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }
constexpr size_t kMiB = size_t{1} << 20;

// Units of one tensor of 4 MiB each.
std::vector<UnitSpec> huge_units(size_t count) {
  std::vector<UnitSpec> units;
  for (size_t u = 0; u < count; ++u) {
    units.push_back({std::string(1, 'u') + std::to_string(u), {{.name = "w", .shape = {1024, 1024}}}});
  }
  return units;
}

// What happens between the hooks does not matter here.
void use(ZeroEngine& engine, UnitId unit, Pass pass) {
  must(engine.before(unit, pass, kCaller));
  must(engine.after(unit, pass, kCaller));
}

TEST(ZeroBuckets, AreOneCollectiveEach) {
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE("stage " + std::to_string(stage));
      const ZeroOptions options{.stage = stage, .prefetch_units = 0, .bucket_bytes = kMiB};
      ZeroEngine engine = must(ZeroEngine::create(comm, huge_units(1), options));
      AdamW adam = must(AdamW::create(engine, {}));
      must(fill_with_noise(engine));
      uint64_t counted = comm.traffic().operations;
      const auto expect_operations = [&](uint64_t expected, const char* what) {
        const uint64_t now = comm.traffic().operations;
        EXPECT_EQ(now - counted, expected) << what;
        counted = now;
      };
      use(engine, 0, Pass::kForward);
      expect_operations(stage == 3 ? 4 : 0, "gathers");
      use(engine, 0, Pass::kBackward);
      must(engine.finish_step(kCaller));
      expect_operations(stage == 0 ? 8 : 4, "reductions");  // stage 0 gathers what it has reduced
      must(adam.step(1e-3f));
      must(engine.synchronize(soon()));
      expect_operations(stage == 1 || stage == 2 ? 4 : 0, "new values");
    }
  });
}

TEST(ZeroBuckets, TwoOfThemAreInFlightBehindTheUnitThatComputes) {
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    constexpr UnitId kUnits = 4;
    for (const int stage : {2, 3}) {
      std::map<size_t, size_t> peaks;
      for (const size_t bucket_bytes : {size_t{0}, kMiB}) {
        const ZeroOptions options{.stage = stage, .bucket_bytes = bucket_bytes};
        const size_t in_flight = bucket_bytes == 0 ? 4 * kMiB : 2 * kMiB;
        ZeroEngine engine = must(ZeroEngine::create(comm, huge_units(kUnits), options));
        AdamW adam = must(AdamW::create(engine, {}));
        must(fill_with_noise(engine));
        for (UnitId u = 0; u < kUnits; ++u) use(engine, u, Pass::kForward);
        for (UnitId u = kUnits; u-- > 0;) {
          must(engine.before(u, Pass::kBackward, kCaller));
          EXPECT_EQ(engine.memory().unreduced_bytes, 4 * kMiB + (u + 1 < kUnits ? in_flight : 0));
          must(engine.after(u, Pass::kBackward, kCaller));
          EXPECT_LE(engine.memory().unreduced_bytes, u + 1 < kUnits && bucket_bytes == 0 ? 8 * kMiB : in_flight);
        }
        must(engine.finish_step(kCaller));
        EXPECT_EQ(engine.memory().unreduced_bytes, 0u);
        peaks[bucket_bytes] = engine.memory().peak_bytes;
        EXPECT_EQ(peaks[bucket_bytes], must(estimate_zero(huge_units(kUnits), 2, options)).peak_bytes);
      }
      EXPECT_EQ(peaks[kMiB], peaks[0] - 2 * kMiB);
    }
  });
}

TEST(ZeroBuckets, ArePrefetchedOneByOneBelowALimit) {
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    const ZeroOptions options{.stage = 3, .prefetch_units = 1, .bucket_bytes = kMiB, .gathered_bytes_limit = 6 * kMiB};
    ZeroEngine engine = must(ZeroEngine::create(comm, huge_units(3), options));
    must(fill_with_noise(engine));
    must(engine.before(0, Pass::kForward, kCaller));
    EXPECT_EQ(engine.memory().gathered_bytes, 6 * kMiB);
    EXPECT_EQ(engine.state(1), UnitState::kGathering);
    EXPECT_EQ(engine.state(2), UnitState::kSharded);
    must(engine.after(0, Pass::kForward, kCaller));
    EXPECT_EQ(engine.memory().gathered_bytes, 4 * kMiB);
    must(engine.before(1, Pass::kForward, kCaller));
    EXPECT_EQ(engine.state(1), UnitState::kGathered);
    EXPECT_EQ(engine.memory().gathered_bytes, 6 * kMiB);
    const auto values = values_of(engine.parameters(1)[0]);
    for (const size_t i : {size_t{0}, values.size() / 3, values.size() / 2, values.size() - 1}) {
      EXPECT_EQ(values[i], 0.3f * noise("u1.w", i, 0));
    }
    must(engine.after(1, Pass::kForward, kCaller));
    must(engine.finish_step(kCaller));
  });
}

// Shapes whose rows do not divide evenly or are larger than a bucket, with matrices beside vectors; tied, frozen, in
// two dtypes; with limits that hold less than two units.
std::vector<Shape> shapes_to_measure() {
  std::vector<Shape> shapes;
  for (const int stage : {0, 1, 2, 3}) {
    for (const size_t bucket_bytes : {128u, 1000u, 4096u}) {
      const ZeroOptions options{.stage = stage, .bucket_bytes = bucket_bytes};
      shapes.push_back({"odd", {.inputs = 23, .width = 37}, options});
      shapes.push_back({"frozen", {.blocks = 3, .frozen_block = true, .matrices = DType::kBF16}, options});
      if (stage < 3) continue;
      shapes.push_back({"deep", {.blocks = 4, .tied = false}, options});
      shapes.back().options.prefetch_units = 3;
      shapes.push_back({"narrow gradients", {.inputs = 23, .width = 37}, options});
      shapes.back().options.gradient_dtype = DType::kBF16;
      for (const size_t limit : {1u, 9000u, 11000u}) {
        shapes.push_back({"limited", {.blocks = 3}, options});
        shapes.back().options.gathered_bytes_limit = limit;
      }
      shapes.push_back({"kept", {.blocks = 3}, options});
      shapes.back().options.free_after_forward = false;
    }
  }
  return shapes;
}

class ZeroBucketCounts : public ::testing::TestWithParam<int> {};

TEST_P(ZeroBucketCounts, MemoryAndTrafficAreThoseOfTheEstimate) {
  run_ranks(GetParam(), RankMode::kThreads,
            [](RankContext& rank) { expect_counts_of_estimate(rank, shapes_to_measure()); });
}
INSTANTIATE_TEST_SUITE_P(Ranks, ZeroBucketCounts, ::testing::Values(1, 2, 3, 4));

TEST(ZeroBuckets, ErrorsSayWhichOfThem) {
  run_ranks(2, RankMode::kThreads, [&](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=3000");
    ZeroEngine engine = must(ZeroEngine::create(comm, huge_units(4), {.stage = 3, .bucket_bytes = kMiB}));
    must(fill_with_noise(engine));
    Status met = engine.before(rank.rank() == 0 ? 2 : 3, Pass::kForward, kCaller);
    EXPECT_FALSE(met.ok());
    EXPECT_NE(met.message().find("gather u2 1/4"), std::string_view::npos) << met.to_string();
    EXPECT_NE(met.message().find("gather u3 1/4"), std::string_view::npos) << met.to_string();
  });
}

TEST(ZeroBuckets, AreShownInTraces) {
  must(trace_start(10'000));
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    ZeroEngine engine = must(ZeroEngine::create(comm, huge_units(1), {.stage = 3, .bucket_bytes = kMiB}));
    must(fill_with_noise(engine));
    use(engine, 0, Pass::kForward);
    use(engine, 0, Pass::kBackward);
    must(engine.finish_step(kCaller));
  });
  trace_stop();
  std::map<std::pair<Lane, std::string>, size_t> seen;
  for (const TraceEvent& event : trace_take()) {
    if (event.rank == 1 && event.lane != Lane::kCompute) seen[{event.lane, event.name}] += event.bytes;
  }
  for (const char* name : {"u0 1/4", "u0 2/4", "u0 3/4", "u0 4/4"}) {
    EXPECT_EQ((seen[{Lane::kGather, name}]), kMiB) << name;
    EXPECT_EQ((seen[{Lane::kReduce, name}]), kMiB) << name;
  }
}

}  // namespace
}  // namespace shardcomm::testing
