// What a ZeRO engine holds, moves, refuses and reports.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

#include "shardcomm/trace.h"
#include "tests/support/rank_group.h"
#include "tests/zero/counts.h"
#include "tests/zero/model.h"

namespace shardcomm::testing {
namespace {

const StreamRef kCaller = StreamRef::caller();

Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }

std::vector<Shape> shapes_to_measure() {
  std::vector<Shape> shapes;
  for (const int stage : {0, 1, 2, 3}) {
    for (const int prefetch : {0, 1, 2}) {
      if (stage < 3 && prefetch > 0) continue;
      shapes.push_back({"f32", {}, {.stage = stage, .prefetch_units = prefetch}});
    }
    shapes.push_back(
        {"bf16", {.tied = false, .matrices = DType::kBF16}, {.stage = stage, .gradient_dtype = DType::kBF16}});
    shapes.push_back({"frozen",
                      {.blocks = 5, .frozen_block = true, .matrices = DType::kBF16},
                      {.stage = stage, .bucket_bytes = 4096}});
    shapes.push_back({"kept", {.blocks = 5}, {.stage = stage, .free_after_forward = false}});
    shapes.push_back(
        {"wide", {.inputs = 300, .width = 16, .blocks = 4}, {.stage = stage}});  // the tied unit is the largest
  }
  return shapes;
}

class ZeroCounts : public ::testing::TestWithParam<int> {};

TEST_P(ZeroCounts, MemoryAndTrafficAreThoseOfTheEstimate) {
  run_ranks(GetParam(), RankMode::kThreads,
            [](RankContext& rank) { expect_counts_of_estimate(rank, shapes_to_measure()); });
}
INSTANTIATE_TEST_SUITE_P(Ranks, ZeroCounts, ::testing::Values(1, 2, 3, 4));

TEST(ZeroMemory, GatheredParametersStayBelowTwoUnits) {
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    const ModelShape shape{.blocks = 6, .tied = false};
    for (const int prefetch : {0, 1, 5, 1000}) {
      ZeroEngine engine = must(ZeroEngine::create(comm, model_units(shape), {.stage = 3, .prefetch_units = prefetch}));
      must(fill_with_noise(engine));
      const size_t block_bytes = (40 * 40 + 2 * 40) * sizeof(float) + 2 * 3 * 128;
      for (int round = 0; round < 2; ++round) {
        for (UnitId u = 0; u < 8; ++u) {
          must(engine.before(u, Pass::kForward, kCaller));
          EXPECT_LE(engine.memory().gathered_bytes, 2 * block_bytes);
          if (u < 7) {
            EXPECT_EQ(engine.state(u + 1) == UnitState::kSharded, prefetch == 0);
          }
          must(engine.after(u, Pass::kForward, kCaller));
        }
        must(engine.finish_step(kCaller));
      }
      EXPECT_LE(engine.memory().peak_bytes, engine.memory().live_bytes + 2 * block_bytes);
    }
  });
}

TEST(ZeroMemory, DeferredGradientsAreCountedAndGiven) {
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    const ModelShape shape{.blocks = 5};
    ZeroEngine engine = must(ZeroEngine::create(comm, model_units(shape), {.stage = 3}));
    AdamW adam = must(AdamW::create(engine, {}));
    must(fill_with_noise(engine));
    const size_t idle = engine.memory().live_bytes;
    Model model(engine, shape, kCaller);
    engine.set_gradient_sync(false);
    model.run(0, 0, 2, 2);
    must(engine.finish_step(kCaller));
    EXPECT_GE(engine.memory().unreduced_bytes, (5 * 40 * 42 + 40 * 21 + 20) * sizeof(float));
    EXPECT_EQ(engine.gradient_norm().status().code(), Code::kFailedPrecondition);
    EXPECT_EQ(adam.step(1e-3f).code(), Code::kFailedPrecondition);
    must(engine.zero_gradients());
    engine.set_gradient_sync(true);
    bare_step(engine, adam, model, 1);
    EXPECT_GE(engine.memory().live_bytes, idle);
    EXPECT_TRUE(must(engine.gradient_norm()) == 0);
  });
}

// A view that outlives its unit reads NaN, so that tests with poison_freed see it; one that does not, reads values.
TEST(ZeroPoison, ShowsUsesAfterFree) {
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    ZeroEngine engine = must(ZeroEngine::create(comm, model_units({.tied = false}),
                                                {.stage = 3, .prefetch_units = 0, .poison_freed = true}));
    must(fill_with_noise(engine));
    must(engine.before(1, Pass::kForward, kCaller));
    const ParameterView kept = engine.parameters(1)[0];
    EXPECT_TRUE(std::isfinite(values_of(kept)[7]));
    must(engine.after(1, Pass::kForward, kCaller));
    must(engine.finish_step(kCaller));
    must(engine.synchronize(soon()));
    for (const float value : values_of(kept)) ASSERT_TRUE(std::isnan(value));
  });
}

TEST(ZeroViews, AreThereOnlyBetweenTheHooks) {
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    for (const int stage : {0, 1, 2, 3}) {
      ZeroEngine engine = must(ZeroEngine::create(comm, model_units({.frozen_block = true}), {.stage = stage}));
      must(fill_with_noise(engine));
      EXPECT_TRUE(engine.parameters(0).empty());
      EXPECT_TRUE(engine.parameters(99).empty());
      must(engine.before(0, Pass::kForward, kCaller));
      ASSERT_EQ(engine.parameters(0).size(), 2u);
      EXPECT_EQ(engine.parameters(0)[0].gradient, nullptr);
      EXPECT_EQ(engine.state(0), UnitState::kGathered);
      const float expected = 0.3f * noise("in.w", 17, 0);
      EXPECT_EQ(values_of(engine.parameters(0)[0])[17], expected);
      must(engine.before(1, Pass::kBackward, kCaller));      // nested
      EXPECT_EQ(engine.parameters(1)[0].gradient, nullptr);  // frozen
      must(engine.after(1, Pass::kBackward, kCaller));
      must(engine.after(0, Pass::kForward, kCaller));
      EXPECT_TRUE(engine.parameters(0).empty());
      {
        UnitScope scope = must(UnitScope::enter(engine, 3, Pass::kBackward, kCaller));
        ASSERT_EQ(scope.parameters().size(), 2u);
        ASSERT_NE(scope.parameters()[0].gradient, nullptr);
        const auto* gradient = reinterpret_cast<const float*>(scope.parameters()[0].gradient);
        EXPECT_TRUE(std::all_of(gradient, gradient + scope.parameters()[0].count, [](float g) { return g == 0; }));
      }
      must(engine.finish_step(kCaller));
    }
  });
}

class ZeroPieces : public ::testing::TestWithParam<size_t> {};

TEST_P(ZeroPieces, CoverEveryParameterOnce) {
  for (const int stage : {0, 1, 2, 3}) {
    std::vector<std::vector<std::vector<int>>> owners;  // by unit, parameter, element
    std::mutex mutex;
    const auto units = model_units({.frozen_block = true, .matrices = DType::kBF16});
    for (const UnitSpec& unit : units) {
      for (auto& of_unit = owners.emplace_back(); const ParameterSpec& spec : unit.parameters) {
        size_t count = 1;
        for (const size_t extent : spec.shape) count *= extent;
        of_unit.emplace_back(spec.tied_to.empty() ? count : 0);
      }
    }
    run_ranks(3, RankMode::kThreads, [&](RankContext& rank) {
      Communicator comm = rank.communicator();
      ZeroEngine engine = must(ZeroEngine::create(comm, units, {.stage = stage, .bucket_bytes = GetParam()}));
      AdamW adam = must(AdamW::create(engine, {}));
      must(fill_with_noise(engine));
      ASSERT_EQ(adam.pieces().size(), engine.pieces().size());
      const std::lock_guard lock(mutex);
      for (size_t i = 0; i < engine.pieces().size(); ++i) {
        const ShardPiece& piece = engine.pieces()[i];
        for (size_t e = 0; e < piece.count; ++e) ++owners[piece.unit][piece.parameter][piece.offset + e];
        EXPECT_EQ(piece.gradient == nullptr, piece.unit == 1);
        EXPECT_EQ(adam.pieces()[i].m == nullptr, piece.unit == 1);
        const ParameterSpec& spec = units[piece.unit].parameters[piece.parameter];
        const float expected = 0.3f * noise(units[piece.unit].name + "." + spec.name, piece.offset, 0);
        if (spec.dtype == DType::kF32) {
          EXPECT_EQ(*reinterpret_cast<const float*>(piece.value), expected);
        } else {
          EXPECT_EQ(*reinterpret_cast<const uint16_t*>(piece.value), float_to_bf16(expected));
          if (piece.unit != 1) {
            EXPECT_EQ(*piece.master, expected);
          }
        }
      }
    });
    for (const auto& unit : owners) {
      for (const auto& parameter : unit) {
        EXPECT_TRUE(std::all_of(parameter.begin(), parameter.end(), [&](int n) { return n == (stage == 0 ? 3 : 1); }));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Buckets, ZeroPieces, ::testing::Values(0, 4096, 600, 128));

TEST(ZeroFrozen, NeverMoves) {
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    const ModelShape shape{.frozen_block = true, .matrices = DType::kBF16};
    ZeroEngine engine = must(ZeroEngine::create(comm, model_units(shape), {.stage = 3}));
    AdamW adam = must(AdamW::create(engine, {.weight_decay = 1}));
    must(fill_with_noise(engine));
    const auto before = all_parameters(engine);
    train(engine, adam, shape, {.steps = 3}, kCaller);
    const auto after = all_parameters(engine);
    for (size_t p = 0; p < before.size(); ++p) EXPECT_EQ(before[p] == after[p], p >= 2 && p < 5) << p;
  });
}

TEST(ZeroNorm, IsNotFiniteOnAnyRankWhenOneGradientIs) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const int stage : {0, 3}) {
      run_ranks(3, RankMode::kThreads, [&](RankContext& rank) {
        Communicator comm = rank.communicator();
        ZeroEngine engine = must(ZeroEngine::create(comm, model_units({}), {.stage = stage}));
        must(fill_with_noise(engine));
        must(engine.before(2, Pass::kBackward, kCaller));
        if (rank.rank() == 1) reinterpret_cast<float*>(engine.parameters(2)[0].gradient)[5] = bad;
        must(engine.after(2, Pass::kBackward, kCaller));
        must(engine.finish_step(kCaller));
        EXPECT_FALSE(std::isfinite(must(engine.gradient_norm())));
      });
    }
  }
}

TEST(ZeroErrors, RanksThatDifferAreToldWhere) {
  run_ranks(3, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    const auto create = [&](const std::vector<UnitSpec>& units, const ZeroOptions& options) {
      return ZeroEngine::create(comm, units, options).status().to_string();
    };
    const bool odd = rank.rank() == 2;
    EXPECT_NE(create(model_units({}), {.stage = odd ? 2 : 3}).find("stage is 3 on rank 0 and 2 on rank 2"),
              std::string::npos);
    EXPECT_NE(create(model_units({.blocks = odd ? 3u : 2u}), {}).find("number of units is 4 on rank 0 and 5 on rank 2"),
              std::string::npos);
    auto renamed = model_units({});
    if (odd) renamed[1].parameters[0].name = "other";
    EXPECT_NE(create(renamed, {}).find("fingerprint"), std::string::npos);
    auto invalid = model_units({});
    if (odd) invalid[1].name = "";
    EXPECT_NE(create(invalid, {}).find("rank 2: unit 1 has no name"), std::string::npos);
    ZeroEngine engine = must(ZeroEngine::create(comm, model_units({}), {}));  // the communicator is as good as before
    must(fill_with_noise(engine));
  });
}

TEST(ZeroErrors, AnotherOrderOfUnitsNamesBothSides) {
  for (const int prefetch : {0, 1}) {
    run_ranks(2, RankMode::kThreads, [&](RankContext& rank) {
      Communicator comm = rank.communicator("timeout_ms=3000");
      ZeroEngine engine = must(ZeroEngine::create(comm, model_units({.blocks = 5, .tied = false}),
                                                  {.stage = 3, .prefetch_units = prefetch}));
      must(fill_with_noise(engine));
      const auto start = std::chrono::steady_clock::now();
      Status met = engine.before(rank.rank() == 0 ? 3 : 4, Pass::kForward, kCaller);
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
      EXPECT_FALSE(met.ok());
      EXPECT_NE(met.message().find("gather h.2"), std::string_view::npos) << met.to_string();
      EXPECT_NE(met.message().find("gather h.3"), std::string_view::npos) << met.to_string();
      EXPECT_FALSE(engine.before(0, Pass::kForward, kCaller).ok());
      EXPECT_FALSE(engine.finish_step(kCaller).ok());
    });
  }
}

TEST(ZeroErrors, WrongCallsAreRefusedAndForgiven) {
  run_ranks(1, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    ZeroEngine engine = must(ZeroEngine::create(comm, model_units({}), {}));
    AdamW adam = must(AdamW::create(engine, {}));
    must(fill_with_noise(engine));
    EXPECT_EQ(engine.before(9, Pass::kForward, kCaller).code(), Code::kInvalidArgument);
    EXPECT_EQ(engine.after(0, Pass::kForward, kCaller).code(), Code::kFailedPrecondition);
    EXPECT_EQ(engine.finish_step(kCaller).code(), Code::kFailedPrecondition);  // tells of after() once more
    must(engine.before(0, Pass::kForward, kCaller));
    EXPECT_EQ(engine.before(0, Pass::kBackward, kCaller).code(), Code::kFailedPrecondition);
    EXPECT_EQ(engine.finish_step(kCaller).code(), Code::kFailedPrecondition);
    EXPECT_EQ(adam.step(0.1f).code(), Code::kFailedPrecondition);
    EXPECT_EQ(fill_with_noise(engine).code(), Code::kFailedPrecondition);
    EXPECT_EQ(engine.before(1, Pass::kForward, StreamRef::cuda(nullptr, 0)).code(), Code::kUnsupported);
    must(engine.after(0, Pass::kForward, kCaller));
    must(engine.finish_step(kCaller));
    EXPECT_EQ(AdamW::create(engine, {.beta1 = 1}).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(AdamW::create(engine, {.eps = -1}).status().code(), Code::kInvalidArgument);
    must(adam.step(0.1f));
  });
}

// A rank gives up in the middle: it gets away at once, and its peers learn why.
TEST(ZeroErrors, AnEngineDestroyedInMidStepHangsNobody) {
  const auto start = std::chrono::steady_clock::now();
  run_ranks(3, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=15000");
    ZeroEngine engine = must(ZeroEngine::create(comm, model_units({}), {.stage = 3}));
    must(fill_with_noise(engine));
    must(engine.before(0, Pass::kForward, kCaller));
    if (rank.rank() == 1) return;
    must(engine.after(0, Pass::kForward, kCaller));
    Status status;
    for (UnitId u = 1; u < 4 && status.ok(); ++u) {
      status = engine.before(u, Pass::kForward, kCaller);
      if (status.ok()) status = engine.after(u, Pass::kForward, kCaller);
    }
    EXPECT_FALSE(status.ok());
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(12));
}

TEST(ZeroTrace, ShowsGathersComputeAndReductionsByUnit) {
  must(trace_start(10'000));
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    ZeroEngine engine = must(ZeroEngine::create(comm, model_units({}), {.stage = 3}));
    AdamW adam = must(AdamW::create(engine, {}));
    must(fill_with_noise(engine));
    Model model(engine, {}, kCaller);
    bare_step(engine, adam, model, 0);
  });
  trace_stop();
  std::map<std::pair<Lane, std::string>, int> seen;
  for (const TraceEvent& event : trace_take()) {
    EXPECT_LE(event.begin_ns, event.end_ns);
    if (event.rank == 1) ++seen[{event.lane, event.name}];
  }
  EXPECT_EQ((seen[{Lane::kCompute, "h.1"}]), 2);
  EXPECT_EQ((seen[{Lane::kGather, "h.1"}]), 2);
  EXPECT_EQ((seen[{Lane::kReduce, "h.1"}]), 1);
  EXPECT_EQ((seen[{Lane::kFree, "h.1"}]), 2);
  EXPECT_EQ((seen[{Lane::kReduce, "out"}]), 1);
}

}  // namespace
}  // namespace shardcomm::testing
