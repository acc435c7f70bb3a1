// The ZeRO engine trains a small model: every stage, bucket size, prefetch depth and accumulation mode is the same
// arithmetic, and at one world size the same bits.
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "tests/support/rank_group.h"
#include "tests/zero/model.h"

namespace shardcomm::testing {
namespace {

struct Outcome {
  Trajectory trajectory;
  std::vector<std::vector<float>> parameters;
  bool operator==(const Outcome&) const = default;
};

struct Case {
  ModelShape shape = {};
  ZeroOptions options = {};
  TrainingPlan plan = {};
  bool asynchronous = false;
};

Outcome train_case(Communicator& comm, const Case& given) {
  const auto units = model_units(given.shape);
  ZeroOptions options = given.options;
  options.poison_freed = true;
  ZeroEngine engine = must(ZeroEngine::create(comm, units, options));
  AdamW adam = must(AdamW::create(engine, {}));
  must(fill_with_noise(engine));
  HostStream stream = must(HostStream::create("compute"));
  const StreamRef compute = given.asynchronous ? stream.ref() : StreamRef::caller();
  Outcome outcome{train(engine, adam, given.shape, given.plan, compute), {}};
  outcome.parameters = all_parameters(engine);
  return outcome;
}

std::string describe(const ZeroOptions& options) {
  return std::string("stage ") + std::to_string(options.stage) + " prefetch " + std::to_string(options.prefetch_units) +
         " buckets " + std::to_string(options.bucket_bytes);
}

// Everything about `got` has the bits of `expected`; says where not.
void expect_same_bits(const Outcome& got, const Outcome& expected, const std::string& what) {
  EXPECT_EQ(got.trajectory.losses, expected.trajectory.losses) << what;
  EXPECT_EQ(got.trajectory.norms, expected.trajectory.norms) << what;
  EXPECT_TRUE(got.parameters == expected.parameters) << what << ": parameters differ";
}

void expect_learned(const Outcome& outcome) {
  ASSERT_FALSE(outcome.trajectory.losses.empty());
  for (const double loss : outcome.trajectory.losses) ASSERT_TRUE(std::isfinite(loss));
  EXPECT_LT(outcome.trajectory.losses.back(), 0.7 * outcome.trajectory.losses.front());
}

class ZeroStages : public ::testing::TestWithParam<int> {};

TEST_P(ZeroStages, AllBucketSizesAndPrefetchDepthsGiveTheSameBits) {
  run_ranks(GetParam(), RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    std::optional<Outcome> expected;
    for (const int stage : {0, 1, 2, 3}) {
      for (const size_t bucket_bytes : {size_t{512}, size_t{4096}, size_t{1} << 20, size_t{0}}) {
        for (const int prefetch : {0, 1, 2}) {
          if (stage < 3 && prefetch > 0) continue;  // nothing to prefetch
          Case given;
          given.options.stage = stage;
          given.options.bucket_bytes = bucket_bytes;
          given.options.prefetch_units = prefetch;
          const Outcome outcome = train_case(comm, given);
          if (!expected) {
            expect_learned(outcome);
            expected = outcome;
          }
          expect_same_bits(outcome, *expected, describe(given.options));
        }
      }
    }
  });
}
INSTANTIATE_TEST_SUITE_P(Ranks, ZeroStages, ::testing::Values(1, 2, 3, 4));

// What all stages must give for one shape and plan, at 3 ranks (uneven shards) in several bucket sizes: matrices are
// cut between rows, inside rows, or not at all.
void expect_stages_agree(const Case& base, size_t smallest_bucket_bytes = 1024) {
  run_ranks(3, RankMode::kThreads, [&](RankContext& rank) {
    Communicator comm = rank.communicator();
    std::optional<Outcome> expected;
    for (const int stage : {0, 1, 2, 3}) {
      for (const size_t bucket_bytes : {size_t{4096}, smallest_bucket_bytes, size_t{0}}) {
        Case given = base;
        given.options.stage = stage;
        given.options.bucket_bytes = bucket_bytes;
        const Outcome outcome = train_case(comm, given);
        if (!expected) expect_learned(outcome);
        if (!expected) expected = outcome;
        expect_same_bits(outcome, *expected, describe(given.options));
      }
    }
  });
}

TEST(ZeroEngine, MixedDtypesAndFrozenUnitsAgreeAtAllStages) {
  Case given;
  given.shape = {.frozen_block = true, .matrices = DType::kBF16};
  expect_stages_agree(given);
}

TEST(ZeroEngine, Bf16GradientsAgreeAtAllStages) {
  Case given;
  given.shape = {.matrices = DType::kBF16};
  given.options.gradient_dtype = DType::kBF16;
  expect_stages_agree(given);
}

TEST(ZeroEngine, OddRowsAgreeAtAllStages) {
  Case given;
  given.shape = {.inputs = 23, .width = 37, .matrices = DType::kBF16};
  expect_stages_agree(given, 128);  // less than a row
  given.shape.matrices = DType::kF32;
  given.options.gradient_dtype = DType::kBF16;
  expect_stages_agree(given, 500);
}

// Parts of units are gathered ahead, in either direction.
TEST(ZeroEngine, LimitsOfGatheredMemoryChangeNoBits) {
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    const Outcome expected = train_case(comm, {.shape = {.blocks = 4}});
    for (const size_t limit : {size_t{1}, size_t{8000}, size_t{11000}}) {
      for (const bool asynchronous : {false, true}) {
        Case given{.shape = {.blocks = 4}, .asynchronous = asynchronous};
        given.options.bucket_bytes = 512;
        given.options.prefetch_units = 2;
        given.options.gathered_bytes_limit = limit;
        expect_same_bits(train_case(comm, given), expected, "limit " + std::to_string(limit));
      }
    }
  });
}

TEST(ZeroEngine, UntiedModelsAgreeAtAllStages) {
  Case given;
  given.shape.tied = false;
  expect_stages_agree(given);
}

TEST(ZeroEngine, AccumulationByReducingEachMicroBatchAgrees) {
  Case given;
  given.plan.micro_batches = 4;
  expect_stages_agree(given);
  given.options.gradient_dtype = DType::kBF16;
  expect_stages_agree(given);
}

TEST(ZeroEngine, AccumulationByDeferringAgrees) {
  Case given;
  given.plan = {.micro_batches = 4, .defer = true};
  expect_stages_agree(given);
}

TEST(ZeroEngine, KeepingUnitsGatheredChangesNoBits) {
  Case given;
  given.options.free_after_forward = false;
  given.options.prefetch_units = 3;
  expect_stages_agree(given);
}

TEST(ZeroEngine, AnAsynchronousComputeStreamChangesNoBits) {
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    for (const int stage : {0, 1, 2, 3}) {
      for (const int micro_batches : {1, 2}) {
        Case given;
        given.options.stage = stage;
        given.plan.micro_batches = micro_batches;
        const Outcome expected = train_case(comm, given);
        given.asynchronous = true;
        for (const size_t bucket_bytes : {given.options.bucket_bytes, size_t{512}}) {
          given.options.bucket_bytes = bucket_bytes;
          expect_same_bits(train_case(comm, given), expected, describe(given.options));
        }
      }
    }
  });
}

TEST(ZeroEngine, BothAccumulationsAndOneBatchLearnTheSame) {
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    std::vector<Outcome> outcomes;
    for (const auto& plan :
         {TrainingPlan{}, TrainingPlan{.micro_batches = 3}, TrainingPlan{.micro_batches = 3, .defer = true}}) {
      Case given;
      given.plan = plan;
      outcomes.push_back(train_case(comm, given));
    }
    for (size_t step = 0; step < outcomes[0].trajectory.losses.size(); ++step) {
      const double loss = outcomes[0].trajectory.losses[step];
      EXPECT_NEAR(outcomes[1].trajectory.losses[step] / loss, 1, 1e-5);
      EXPECT_NEAR(outcomes[2].trajectory.losses[step] / loss, 1, 1e-5);
    }
  });
}

TEST(ZeroEngine, WorldSizesLearnTheSame) {
  std::map<int, Outcome> by_size;
  for (const int size : {1, 2, 3, 4, 6}) {
    run_ranks(size, RankMode::kThreads, [&](RankContext& rank) {
      Communicator comm = rank.communicator();
      const Outcome outcome = train_case(comm, {});
      if (rank.rank() == 0) by_size[size] = outcome;
    });
  }
  ASSERT_EQ(by_size.size(), 5u);
  for (const auto& [size, outcome] : by_size) {
    for (size_t step = 0; step < outcome.trajectory.losses.size(); ++step) {
      EXPECT_NEAR(outcome.trajectory.losses[step] / by_size[1].trajectory.losses[step], 1, 1e-5) << size << " ranks";
      EXPECT_NEAR(outcome.trajectory.norms[step] / by_size[1].trajectory.norms[step], 1, 1e-5) << size << " ranks";
    }
  }
}

// 8 ranks share vectors of 3 elements: most shards hold nothing real.
TEST(ZeroEngine, EmptyShardsWork) {
  const std::vector<UnitSpec> units = {{"a", {{.name = "w", .shape = {3}}, {.name = "none", .shape = {0, 5}}}},
                                       {"b", {{.name = "s", .shape = {}}}}};
  for (const int stage : {0, 1, 2, 3}) {
    run_ranks(8, RankMode::kThreads, [&](RankContext& rank) {
      Communicator comm = rank.communicator();
      ZeroEngine engine = must(ZeroEngine::create(comm, units, {.stage = stage, .poison_freed = true}));
      AdamW adam = must(AdamW::create(engine, {.weight_decay = 0}));
      must(fill_with_noise(engine));
      const auto before = all_parameters(engine);
      for (const UnitId u : {1u, 0u}) {
        must(engine.before(u, Pass::kBackward, StreamRef::caller()));
        for (const ParameterView& view : engine.parameters(u)) add_to_gradient(view, std::vector<float>(view.count, 1));
        must(engine.after(u, Pass::kBackward, StreamRef::caller()));
      }
      must(engine.finish_step(StreamRef::caller()));
      EXPECT_DOUBLE_EQ(must(engine.gradient_norm()), 16);  // 4 elements of 8 each
      must(adam.step(0.5f));
      const auto after = all_parameters(engine);
      ASSERT_EQ(after.size(), before.size());
      for (size_t p = 0; p < after.size(); ++p) {
        for (size_t i = 0; i < after[p].size(); ++i) EXPECT_NEAR(after[p][i], before[p][i] - 0.5f, 1e-5f);
      }
    });
  }
}

// Evaluation between steps: forward only, with and without finish_step.
TEST(ZeroEngine, EvaluationChangesNothing) {
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    for (const int stage : {2, 3}) {
      std::vector<Outcome> outcomes;
      for (const bool evaluates : {false, true}) {
        ZeroEngine engine = must(ZeroEngine::create(comm, model_units({}), {.stage = stage, .poison_freed = true}));
        AdamW adam = must(AdamW::create(engine, {}));
        must(fill_with_noise(engine));
        Outcome outcome;
        for (uint64_t step = 0; step < 6; ++step) {
          const Trajectory one = train(engine, adam, {}, {.first_step = step, .steps = 1}, StreamRef::caller());
          outcome.trajectory.losses.push_back(one.losses[0]);
          outcome.trajectory.norms.push_back(one.norms[0]);
          if (!evaluates) continue;
          Model model(engine, {}, StreamRef::caller());
          for (int pass = 0; pass < 3; ++pass) model.forward_only(99, 0, 2);
          if (step % 2 == 0) must(engine.finish_step(StreamRef::caller()));
        }
        must(engine.finish_step(StreamRef::caller()));
        outcome.parameters = all_parameters(engine);
        outcomes.push_back(outcome);
      }
      expect_same_bits(outcomes[1], outcomes[0], "with evaluation");
    }
  });
}

TEST(ZeroEngine, RanksMayBeProcesses) {
  run_ranks(2, RankMode::kProcesses, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    Case given;
    given.options.stage = 0;
    const Outcome expected = train_case(comm, given);
    expect_learned(expected);
    given.options.stage = 3;
    expect_same_bits(train_case(comm, given), expected, describe(given.options));
  });
}

}  // namespace
}  // namespace shardcomm::testing
