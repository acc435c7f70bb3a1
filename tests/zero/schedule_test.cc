// The pure half of the ZeRO engine: layouts, the state machine, the arena, the estimate.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/zero/model.h"
#include "tests/zero/walk.h"
#include "zero/arena.h"
#include "zero/transfer.h"

namespace shardcomm::zero {
namespace {

constexpr Pass kForward = Pass::kForward;
constexpr Pass kBackward = Pass::kBackward;

TEST(ZeroLayout, ShardsCoverEveryElementOnce) {
  const testing::ModelShape shape{.frozen_block = true, .matrices = DType::kBF16};
  const auto units = testing::model_units(shape);
  for (const int ranks : {1, 2, 3, 4, 7, 64}) {
    for (const size_t bucket_bytes : {size_t{0}, size_t{512}, size_t{4096}}) {
      ZeroOptions options;
      options.bucket_bytes = bucket_bytes;
      const Layout layout = layout_of(units, ranks, options);
      for (const UnitLayout& unit : layout.units) {
        for (const ParameterPlace& place : unit.parameters) {
          size_t next = 0;
          for (const uint32_t bucket : place.buckets()) {
            for (Rank rank = 0; rank < ranks; ++rank) {
              const auto run = shard_run(layout, place, bucket, rank);
              if (!run) continue;
              ASSERT_EQ(run->parameter_offset, next);
              ASSERT_GT(run->count, 0u);
              next += run->count;
            }
          }
          ASSERT_EQ(next, place.count);
        }
      }
    }
  }
}

TEST(ZeroLayout, SeparatesFrozenAndDtypes) {
  const testing::ModelShape shape{.frozen_block = true, .matrices = DType::kBF16};
  const Layout layout = layout_of(testing::model_units(shape), 2, {});
  const UnitLayout& frozen = layout.units[1];
  EXPECT_EQ(frozen.buckets.size(), 2u);  // bf16 and f32
  EXPECT_EQ(frozen.gradient_bytes, 0u);
  EXPECT_TRUE(frozen.contributes.empty());
  EXPECT_EQ(frozen.needs, std::vector<UnitId>{1});
}

TEST(ZeroLayout, TiedParametersLieWithTheirOwner) {
  const Layout layout = layout_of(testing::model_units({}), 2, {});
  const UnitLayout& out = layout.units.back();
  EXPECT_TRUE(out.parameters[0].tied);
  EXPECT_EQ(out.parameters[0].owner, 0u);
  EXPECT_EQ(out.parameters[0].offset, layout.units[0].parameters[0].offset);
  EXPECT_EQ(out.needs, (std::vector<UnitId>{3, 0}));
  EXPECT_EQ(out.contributes, (std::vector<UnitId>{3, 0}));
  EXPECT_EQ(layout.parameter_count, 40u * 20 + 40 + 2 * (40 * 40 + 80) + 20);
}

TEST(ZeroLayout, RefusesWhatCannotBe) {
  const auto code = [](std::vector<UnitSpec> units, ZeroOptions options = {}) {
    return make_layout(units, 2, options).status().code();
  };
  const auto bad = Code::kInvalidArgument;
  EXPECT_EQ(code({{"a", {parameter("w", {3})}}, {"a", {}}}), bad);
  EXPECT_EQ(code({{"a", {parameter("w", {3}), parameter("w", {3})}}}), bad);
  EXPECT_EQ(code({{"a", {parameter("b.c", {3})}}, {"a.b", {parameter("c", {3})}}}), bad);
  EXPECT_EQ(code({{"a", {parameter("w", {3}), parameter("w/m", {3})}}}), bad);
  EXPECT_EQ(code({{"", {}}}), bad);
  EXPECT_EQ(code({{"a", {parameter("", {3})}}}), bad);
  EXPECT_EQ(code({{"a", {parameter("w", {SIZE_MAX, 2})}}}), bad);
  ParameterSpec half = parameter("w", {3}), tied = parameter("t", {3}), tied_late = tied,
                tied_wide = parameter("t", {4});
  half.dtype = DType::kF16;
  tied.tied_to = tied_wide.tied_to = "a.w";
  tied_late.tied_to = "b.w";
  EXPECT_EQ(code({{"a", {half}}}), bad);
  EXPECT_EQ(code({{"a", {parameter("w", {3}), tied_late}}, {"b", {parameter("w", {3})}}}), bad);
  EXPECT_EQ(code({{"a", {parameter("w", {3})}}, {"b", {tied_wide}}}), bad);
  tied.trainable = false;
  EXPECT_EQ(code({{"a", {parameter("w", {3})}}, {"b", {tied}}}), bad);
  EXPECT_EQ(code({}, {.stage = 4}), bad);
  EXPECT_EQ(code({}, {.stage = -1}), bad);
  EXPECT_EQ(code({}, {.prefetch_units = -1}), bad);
  EXPECT_EQ(code({}, {.gradient_dtype = DType::kF16}), bad);
  EXPECT_EQ(code({}), Code::kOk);
}

TEST(ZeroSchedule, WalksTheStaircase) {
  const ZeroOptions options{.stage = 3, .prefetch_units = 1};
  const Layout layout = layout_of(chain({100, 100, 100}), 2, options);
  Walk run(layout, options);
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(run.before(0, kForward), "gather0 gather1 join0");
    EXPECT_EQ(run.after(0, kForward), "free0");
    EXPECT_EQ(run.before(1, kForward), "gather2 join1");
    EXPECT_EQ(run.after(1, kForward), "free1");
    EXPECT_EQ(run.before(2, kForward), "join2");
    EXPECT_EQ(run.after(2, kForward), "");  // the first of backward: it stays
    EXPECT_EQ(run.before(2, kBackward), "gather1 join2 open2");
    EXPECT_EQ(run.after(2, kBackward), "free2 reduce2");
    EXPECT_EQ(run.before(1, kBackward), "gather0 join1 open1");
    EXPECT_EQ(run.after(1, kBackward), "free1 reduce1");
    EXPECT_EQ(run.before(0, kBackward), "join0 retire2 open0");
    EXPECT_EQ(run.after(0, kBackward), "free0 reduce0");
    EXPECT_EQ(run.finish(), "retire1 retire0");
  }
}

TEST(ZeroSchedule, ReducesTiedGradientsAfterTheirLastUse) {
  auto units = chain({100, 100, 100});
  ParameterSpec tied = parameter("t", {100});
  tied.tied_to = "u0.w";
  units[2].parameters.push_back(tied);
  const ZeroOptions options{.stage = 2};
  const Layout layout = layout_of(units, 2, options);
  Walk run(layout, options);
  for (const UnitId u : {0u, 1u, 2u}) {
    run.before(u, kForward);
    run.after(u, kForward);
  }
  EXPECT_EQ(run.before(2, kBackward), "join2 join0 open2 open0");
  EXPECT_EQ(run.after(2, kBackward), "reduce2");
  EXPECT_EQ(run.before(1, kBackward), "join1 open1");
  EXPECT_EQ(run.after(1, kBackward), "reduce1");
  EXPECT_EQ(run.before(0, kBackward), "join0");
  EXPECT_EQ(run.after(0, kBackward), "retire2 reduce0");  // two at most are in flight
  EXPECT_EQ(run.finish(), "retire1 retire0");
}

TEST(ZeroSchedule, DefersWithoutSyncAndReducesWhatWasLeft) {
  const ZeroOptions options{.stage = 2};
  const Layout layout = layout_of(chain({10, 10}), 2, options);
  Walk run(layout, options);
  EXPECT_EQ(run.before(1, kBackward), "join1 open1");
  EXPECT_EQ(run.after(1, kBackward, false), "");
  EXPECT_EQ(run.before(0, kBackward), "join0 open0");
  EXPECT_EQ(run.after(0, kBackward, false), "");
  EXPECT_EQ(run.finish(false), "");
  EXPECT_EQ(run.schedule.unreduced_unit(), "u0");
  EXPECT_EQ(run.before(1, kBackward), "join1");  // still open: adds up
  EXPECT_EQ(run.after(1, kBackward), "reduce1");
  EXPECT_EQ(run.finish(), "reduce0 retire1 retire0");  // unit 0 was not used again
  EXPECT_EQ(run.schedule.unreduced_unit(), "");
}

TEST(ZeroSchedule, ForgivesAnotherOrderAndLearnsIt) {
  const ZeroOptions options{.stage = 3, .prefetch_units = 1};
  const Layout layout = layout_of(chain({100, 100, 100}), 2, options);
  Walk run(layout, options);
  const auto step = [&] {
    std::string log;
    for (const UnitId u : {1u, 0u, 2u}) {
      log += run.before(u, kForward) + " | ";
      run.after(u, kForward);
    }
    for (const UnitId u : {2u, 0u, 1u}) {
      run.before(u, kBackward);
      run.after(u, kBackward);
    }
    run.finish();
    return log;
  };
  EXPECT_EQ(step(), "gather1 gather2 join1 | gather0 join0 | join2 | ");
  EXPECT_EQ(step(), "gather1 gather0 join1 | gather2 join0 | join2 | ");
}

TEST(ZeroSchedule, RefusesWrongCallsAndChangesNothing) {
  const Layout layout = layout_of(chain({100, 100}), 2, {});
  Walk run(layout, {});
  EXPECT_EQ(run.before(7, kForward), "before: unit 7 of 2");
  EXPECT_EQ(run.after(0, kForward), "after(u0, forward): it is not open");
  run.before(0, kForward);
  EXPECT_EQ(run.before(0, kForward), "before(u0): it is already open, in forward");
  EXPECT_EQ(run.after(0, kBackward), "after(u0, backward): it is open in the other pass");
  EXPECT_EQ(run.finish(), "finish_step: unit u0 is still between before and after");
  EXPECT_EQ(run.after(0, kForward), "free0");
}

// A random walk, in legal calls of any order: what is promised of memory and of gradients holds throughout.
TEST(ZeroSchedule, KeepsItsBoundsInAnyOrder) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 60; ++round) {
    std::vector<size_t> counts(2 + random() % 6);
    for (size_t& count : counts) count = 1 + random() % 2000;
    ZeroOptions options;
    options.prefetch_units = static_cast<int>(random() % 4);
    const Layout layout = layout_of(chain(counts), 2 + static_cast<int>(random() % 3), options);
    std::vector<size_t> sizes;
    for (const UnitLayout& unit : layout.units) sizes.push_back(unit.value_bytes);
    std::sort(sizes.rbegin(), sizes.rend());
    Walk run(layout, options);
    size_t gathered = 0;
    std::set<UnitId> held, opened;
    const auto carry_out = [&](Status status, const std::vector<Action>& actions) {
      ASSERT_TRUE(status.ok()) << status.to_string();
      for (const auto& [kind, unit, transfer] : actions) {
        if (kind == Kind::kGather) {
          ASSERT_TRUE(held.insert(unit).second);
          gathered += layout.units[unit].value_bytes;
        }
        if (kind == Kind::kFree) {
          ASSERT_EQ(held.erase(unit), 1u);
          gathered -= layout.units[unit].value_bytes;
        }
        if (kind == Kind::kJoin) {
          ASSERT_TRUE(held.contains(unit));
        }
        if (kind == Kind::kOpen) {
          ASSERT_TRUE(opened.insert(unit).second);
        }
        if (kind == Kind::kReduce) {
          ASSERT_EQ(opened.erase(unit), 1u);
        }
        ASSERT_LE(gathered, sizes[0] + sizes[1]);
      }
    };
    for (int call = 0; call < 200; ++call) {
      const auto unit = static_cast<UnitId>(random() % counts.size());
      const Pass pass = random() % 2 == 0 ? kForward : kBackward;
      std::vector<Action> actions;
      Status status = run.schedule.before(unit, pass, actions);
      carry_out(status, actions);
      ASSERT_TRUE(run.schedule.is_gathered(unit));
      ASSERT_TRUE(run.schedule.gathered_offset(unit).has_value());
      actions.clear();
      status = run.schedule.after(unit, pass, true, actions);
      carry_out(status, actions);
      if (random() % 10 != 0) continue;
      actions.clear();
      status = run.schedule.finish(true, actions);
      carry_out(status, actions);
      ASSERT_EQ(gathered, 0u);
      ASSERT_TRUE(opened.empty());
    }
  }
}

TEST(ZeroArena, BlocksNeverOverlapAndTwoAtATimeNeverFragment) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<size_t> sizes(8);
    for (size_t& size : sizes) size = 1 + random() % 100;
    auto sorted = sizes;
    std::sort(sorted.rbegin(), sorted.rend());
    Arena arena(sorted[0] + sorted[1]);
    std::optional<size_t> previous;
    size_t previous_size = 0, last = 0;
    for (int i = 0; i < 50; ++i) {
      const size_t index = (last + 1 + random() % (sizes.size() - 1)) % sizes.size();  // not the one that lives
      const size_t size = sizes[index];
      last = index;
      const auto offset = arena.find(size);
      ASSERT_TRUE(offset.has_value());
      arena.take(*offset, size);
      ASSERT_LE(*offset + size, arena.capacity());
      if (previous) {
        ASSERT_TRUE(*offset + size <= *previous || *previous + previous_size <= *offset);
        arena.release(*previous);
      }
      previous = offset;
      previous_size = size;
      ASSERT_EQ(arena.used_bytes(), size);
    }
  }
  Arena small(10);
  EXPECT_EQ(small.find(11), std::nullopt);
  EXPECT_EQ(small.find(10), 0u);
  small.take(0, 10);
  EXPECT_EQ(small.find(1), std::nullopt);
}

TEST(ZeroEstimate, CountsByHand) {
  // Two units of 1024 f32 on 2 ranks: no padding. Shards 4096 B, moments and sums 3 x 4096 B.
  const auto units = chain({1024, 1024});
  const auto at = [&](int stage, int prefetch) {
    return estimate_zero(units, 2, {.stage = stage, .prefetch_units = prefetch}).value();
  };
  constexpr size_t kUnit = 4096, kHalf = kUnit / 2;
  EXPECT_EQ(at(3, 0).parameter_count, 2048u);
  // Stage 3: gathers of 0, 1, 0 (1 stays between the passes), reductions of both.
  EXPECT_EQ(at(3, 0).bytes_per_step, 3 * kHalf + 2 * kHalf);
  EXPECT_EQ(at(2, 0).bytes_per_step, 2 * kHalf + 2 * kHalf);
  EXPECT_EQ(at(1, 0).bytes_per_step, 2 * kHalf + 2 * kHalf);
  EXPECT_EQ(at(0, 0).bytes_per_step, 2 * 2 * kHalf);
  // Shards of values, sums, m, v: 4 x 4096; backward of 0: gathered 0, gradients of 0 and, being reduced, of 1.
  EXPECT_EQ(at(3, 0).peak_bytes, 4 * kUnit + kUnit + 2 * kUnit);
  // With prefetch in backward of 1: both gathered, gradients of 1. Not more than that.
  EXPECT_EQ(at(3, 1).peak_bytes, 4 * kUnit + 2 * kUnit + kUnit);
  EXPECT_EQ(at(2, 0).peak_bytes, 2 * kUnit + 3 * kUnit + 2 * kUnit);
  EXPECT_EQ(at(1, 0).peak_bytes, 2 * kUnit + 2 * kUnit + 2 * kUnit);
  EXPECT_EQ(at(0, 0).peak_bytes, 2 * kUnit + 2 * kUnit + 4 * kUnit);
  EXPECT_EQ(estimate_zero(units, 1, {}).value().bytes_per_step, 0u);
  EXPECT_EQ(estimate_zero(units, 0, {}).status().code(), Code::kInvalidArgument);
}

TEST(ZeroSchedule, PlacesEverythingInTwoUnits) {
  const auto units = chain({5000, 100, 4000, 300, 2500, 2500, 1});
  for (const int prefetch : {0, 1, 2, 5, 100}) {
    const ZeroOptions options{.stage = 3, .prefetch_units = prefetch};
    const Layout layout = layout_of(units, 3, options);
    Walk run(layout, options);
    EXPECT_EQ(run.schedule.gathered_capacity(), layout.units[0].value_bytes + layout.units[2].value_bytes);
    const auto expect_placed = [&] {
      size_t end = 0;
      std::vector<std::pair<size_t, size_t>> blocks;
      for (UnitId u = 0; u < units.size(); ++u) {
        if (!run.schedule.is_gathered(u)) continue;
        const auto offset = run.schedule.gathered_offset(u);
        ASSERT_TRUE(offset.has_value()) << u;
        blocks.emplace_back(*offset, layout.units[u].value_bytes);
      }
      std::sort(blocks.begin(), blocks.end());
      for (const auto& [offset, bytes] : blocks) {
        ASSERT_GE(offset, end);
        end = offset + bytes;
      }
      ASSERT_LE(end, run.schedule.gathered_capacity());
    };
    for (int step = 0; step < 2; ++step) {
      for (UnitId u = 0; u < units.size(); ++u) {
        run.before(u, kForward);
        expect_placed();
        run.after(u, kForward);
      }
      for (UnitId u = static_cast<UnitId>(units.size()); u-- > 0;) {
        run.before(u, kBackward);
        expect_placed();
        run.after(u, kBackward);
      }
      run.finish();
    }
  }
}

TEST(ZeroLabel, KeepsTheEndOfLongNames) {
  EXPECT_EQ(collective_label("gather", "h.3"), "gather h.3");
  const std::string label = collective_label("gather", "transformer.encoder.layers.attention.17");
  EXPECT_EQ(label.size(), 31u);
  EXPECT_TRUE(label.starts_with("gather ..") && label.ends_with("attention.17")) << label;
}

}  // namespace
}  // namespace shardcomm::zero
