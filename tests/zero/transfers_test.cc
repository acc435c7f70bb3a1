// bucket_bytes is what one collective moves: layouts, the state machine and the estimate at that grain, without an
// engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "tests/zero/model.h"
#include "tests/zero/walk.h"
#include "zero/transfer.h"

namespace shardcomm::zero {
namespace {

constexpr Pass kForward = Pass::kForward;
constexpr Pass kBackward = Pass::kBackward;
constexpr size_t kMiB = size_t{1} << 20;

// A cut parameter is one piece of memory, as values and as gradients.
TEST(ZeroBuckets, CutParametersStayContiguous) {
  const std::vector<UnitSpec> units = {
      {"u", {parameter("a", {7}), parameter("huge", {61, 50}), parameter("b", {9}), parameter("vector", {2500})}}};
  for (const int ranks : {1, 2, 3, 7}) {
    for (const DType gradient_dtype : {DType::kF32, DType::kBF16}) {
      const ZeroOptions options{.bucket_bytes = 4096, .gradient_dtype = gradient_dtype};
      const Layout layout = layout_of(units, ranks, options);
      const UnitLayout& unit = layout.units[0];
      size_t cut = 0;
      for (const ParameterPlace& place : unit.parameters) {
        if (place.bucket_count > 1) ++cut;
        const UnitBucket& first = unit.buckets[place.bucket];
        for (const uint32_t b : place.buckets()) {
          const size_t before = (b - place.bucket) * first.full_count;
          EXPECT_EQ(unit.buckets[b].full_offset_bytes, first.full_offset_bytes + before * sizeof(float));
          EXPECT_EQ(unit.buckets[b].gradient_offset_bytes,
                    first.gradient_offset_bytes + before * size_of(gradient_dtype));
          EXPECT_LE(unit.buckets[b].full_bytes(), options.bucket_bytes);
        }
      }
      EXPECT_EQ(cut, 2u);
    }
  }
}

// A unit of two dtypes has two buckets at least, and still one collective where they fit bucket_bytes.
TEST(ZeroBuckets, SmallOnesAreMovedTogether) {
  const testing::ModelShape shape{.frozen_block = true, .matrices = DType::kBF16};
  const auto units = testing::model_units(shape);
  for (const UnitLayout& unit : layout_of(units, 2, {}).units) {
    EXPECT_EQ(unit.value_transfers.size(), 1u) << unit.name;
    EXPECT_EQ(unit.gradient_transfers.size(), unit.gradient_bytes > 0 ? 1u : 0u) << unit.name;
  }
  ZeroOptions options;
  options.bucket_bytes = 2048;
  for (const UnitLayout& unit : layout_of(units, 2, options).units) {
    const auto expect_tiled = [&](const std::vector<Transfer>& transfers, size_t bytes) {
      size_t end = 0;
      for (const Transfer& transfer : transfers) {
        EXPECT_EQ(transfer.begin_bytes, end);
        end += transfer.bytes;
        size_t values = 0;
        for (const UnitBucket& bucket : unit.buckets_of(transfer)) values += bucket.full_bytes();
        EXPECT_LE(values, options.bucket_bytes);
      }
      EXPECT_EQ(end, bytes);
    };
    expect_tiled(unit.value_transfers, unit.value_bytes);
    expect_tiled(unit.gradient_transfers, unit.gradient_bytes);
  }
}

TEST(ZeroBuckets, MosaicsAreNotCut) {
  const auto units = chain({size_t{1} << 20});
  const Layout layout = layout_of(units, 2, {.bucket_bytes = 4096, .mosaic = true});
  EXPECT_EQ(layout.units[0].parameters[0].bucket_count, 1u);
  EXPECT_GT(layout.units[0].mosaic_bytes, 0u);
  EXPECT_GT(layout_of(units, 2, {.stage = 2, .bucket_bytes = 4096, .mosaic = true}).units[0].buckets.size(), 1u);
}

// Three units of four buckets. Reductions run from the middle of their memory outwards and two at most are in flight,
// so that the next unit's whole gradients find one piece beside them.
TEST(ZeroBuckets, AreGatheredAndReducedOneByOne) {
  const ZeroOptions options{.stage = 3, .prefetch_units = 1, .bucket_bytes = 4096};
  const Layout layout = layout_of(chain({4096, 4096, 4096}), 2, options);
  Walk run(layout, options);
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(run.before(0, kForward),
              "gather0.0 gather0.1 gather0.2 gather0.3 gather1.3 gather1.2 gather1.1 gather1.0 join0");
    EXPECT_EQ(run.after(0, kForward), "free0");
    EXPECT_EQ(run.before(1, kForward), "gather2.0 gather2.1 gather2.2 gather2.3 join1");
    EXPECT_EQ(run.after(1, kForward), "free1");
    EXPECT_EQ(run.before(2, kForward), "join2");
    EXPECT_EQ(run.after(2, kForward), "");
    EXPECT_EQ(run.before(2, kBackward), "gather1.3 gather1.2 gather1.1 gather1.0 join2 open2");
    EXPECT_EQ(run.schedule.gradient_offset(2), 0u);
    EXPECT_EQ(run.after(2, kBackward), "free2 reduce2.3 reduce2.2 retire2.3 reduce2.1 retire2.2 reduce2.0");
    EXPECT_EQ(run.before(1, kBackward), "gather0.0 gather0.1 gather0.2 gather0.3 join1 open1");
    EXPECT_EQ(run.schedule.gradient_offset(1), size_t{2 * 4096});
    EXPECT_EQ(run.after(1, kBackward),
              "free1 retire2.1 reduce1.0 retire2.0 reduce1.1 retire1.0 reduce1.2 retire1.1 reduce1.3");
    EXPECT_EQ(run.before(0, kBackward), "join0 open0");
    EXPECT_EQ(run.schedule.gradient_offset(0), 0u);
    EXPECT_EQ(run.after(0, kBackward),
              "free0 retire1.2 reduce0.3 retire1.3 reduce0.2 retire0.3 reduce0.1 retire0.2 reduce0.0");
    EXPECT_EQ(run.finish(), "retire0.1 retire0.0");
  }
}

// A limit of one unit and a half: half of the next one is gathered ahead, and the rest when the current one is freed,
// before the reductions.
TEST(ZeroBuckets, PrefetchFillsWhatTheLimitHolds) {
  const ZeroOptions options{.stage = 3, .prefetch_units = 1, .bucket_bytes = 4096, .gathered_bytes_limit = 6 * 4096};
  const Layout layout = layout_of(chain({4096, 4096, 4096}), 2, options);
  Walk run(layout, options);
  EXPECT_EQ(run.schedule.gathered_capacity(), options.gathered_bytes_limit);
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(run.before(0, kForward), "gather0.0 gather0.1 gather0.2 gather0.3 gather1.3 gather1.2 join0");
    EXPECT_EQ(run.schedule.gathered_offset(1), size_t{2 * 4096});  // its other half lies under the end of unit 0
    EXPECT_TRUE(run.schedule.is_partly_gathered(1) && !run.schedule.is_gathered(1));
    EXPECT_EQ(run.after(0, kForward), "free0 gather1.1 gather1.0");
    EXPECT_TRUE(run.schedule.is_gathered(1));
    EXPECT_EQ(run.before(1, kForward), "gather2.0 gather2.1 join1");
    EXPECT_EQ(run.after(1, kForward), "free1 gather2.2 gather2.3");
    EXPECT_EQ(run.before(2, kForward), "join2");
    EXPECT_EQ(run.after(2, kForward), "");
    EXPECT_EQ(run.before(2, kBackward), "gather1.3 gather1.2 join2 open2");
    EXPECT_EQ(run.after(2, kBackward),
              "free2 gather1.1 gather1.0 reduce2.3 reduce2.2 retire2.3 reduce2.1 retire2.2 reduce2.0");
    run.before(1, kBackward);
    run.after(1, kBackward);
    run.before(0, kBackward);
    run.after(0, kBackward);
    run.finish();
  }
}

// A part that was gathered ahead stays where it is when another unit comes first, and makes room when it must.
TEST(ZeroBuckets, PartsGatheredAheadAreNoObstacle) {
  const ZeroOptions options{.stage = 3, .prefetch_units = 1, .bucket_bytes = 4096, .gathered_bytes_limit = 6 * 4096};
  const Layout layout = layout_of(chain({4096, 4096, 4096}), 2, options);
  Walk run(layout, options);
  run.before(0, kForward);
  EXPECT_EQ(run.before(2, kForward),
            "free1 gather2.0 gather2.1 gather2.2 gather2.3 join2");  // nested: memory of its own
  EXPECT_EQ(run.schedule.gathered_offset(2), std::nullopt);
  EXPECT_EQ(run.after(2, kForward), "");  // the next use, in backward
  EXPECT_EQ(run.before(1, kForward), "free2 gather1.0 gather1.1 gather1.2 gather1.3 join1");
}

// Six tensors of 4 MiB in buckets of one: behind the unit that computes there are two buckets, not another unit.
TEST(ZeroBuckets, TheEstimateFallsWithThem) {
  std::vector<UnitSpec> units;
  for (int u = 0; u < 6; ++u)
    units.push_back({std::string(1, 'u') + std::to_string(u), {parameter("w", {1024, 1024})}});
  const auto plan = [&](size_t bucket_bytes) {
    const ZeroOptions options{.bucket_bytes = bucket_bytes};
    return dry_run(layout_of(units, 2, options), options);
  };
  const DryRun whole = plan(0);
  EXPECT_EQ(whole.unreduced_peak_bytes, 2 * 4 * kMiB);
  for (const size_t bucket_bytes : {4 * kMiB, 2 * kMiB, kMiB, kMiB / 4}) {
    const DryRun run = plan(bucket_bytes);
    const size_t in_flight = std::min(4 * kMiB, 2 * bucket_bytes);
    EXPECT_EQ(run.unreduced_peak_bytes, 4 * kMiB + in_flight);
    EXPECT_EQ(run.peak_bytes, whole.peak_bytes - 4 * kMiB + in_flight);
    EXPECT_EQ(run.gradient_capacity, run.unreduced_peak_bytes);  // no more memory than that
    EXPECT_EQ(run.gather_count, whole.gather_count * (4 * kMiB / bucket_bytes));
    EXPECT_EQ(run.gather_bytes_sent, whole.gather_bytes_sent);
    EXPECT_EQ(run.reduce_bytes_sent, whole.reduce_bytes_sent);
  }
}

TEST(ZeroBuckets, AreNamedInLabels) {
  const Layout layout = layout_of(chain({4096, 100}), 2, {.bucket_bytes = 4096});
  const auto label = [&](UnitId unit, size_t index) {
    return collective_label("gather", transfer_name(layout.units[unit], layout.units[unit].value_transfers, index));
  };
  EXPECT_EQ(label(0, 1), "gather u0 2/4");
  EXPECT_EQ(label(1, 0), "gather u1");
}

// A random walk in legal calls of any order, nested or not: blocks never overlap, limits hold, and whole gradients are
// reduced once.
class RandomWalk {
 public:
  RandomWalk(const Layout& layout, const ZeroOptions& options)
      : layout_(layout),
        schedule_(layout, options, dry_run(layout, options).gradient_capacity),
        values_(layout.units.size()),
        gradients_(layout.units.size()) {}

  void before(UnitId unit, Pass pass) {
    run([&](auto& actions) { return schedule_.before(unit, pass, actions); });
    for (const UnitId id : layout_.units[unit].needs) {
      ASSERT_TRUE(schedule_.is_gathered(id));
      ASSERT_EQ(values_[id].size(), layout_.units[id].value_transfers.size());
    }
  }
  void after(UnitId unit, Pass pass) {
    run([&](auto& actions) { return schedule_.after(unit, pass, true, actions); });
  }
  void finish() {
    run([&](auto& actions) { return schedule_.finish(true, actions); });
    for (UnitId u = 0; u < values_.size(); ++u) ASSERT_TRUE(values_[u].empty() && gradients_[u].empty());
  }
  size_t gathered_bytes() const {
    size_t bytes = 0;
    for (UnitId u = 0; u < values_.size(); ++u) {
      for (const uint32_t t : values_[u]) bytes += layout_.units[u].value_transfers[t].bytes;
    }
    return bytes;
  }
  const Schedule& schedule() const { return schedule_; }

 private:
  template <class Hook>
  void run(Hook hook) {
    std::vector<Action> actions;
    const Status status = hook(actions);
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (const Action& action : actions) carry_out(action);
    expect_apart(values_, &UnitLayout::value_transfers, [&](UnitId u) { return schedule_.gathered_offset(u); });
    expect_apart(gradients_, &UnitLayout::gradient_transfers, [&](UnitId u) { return schedule_.gradient_offset(u); });
  }

  void carry_out(const Action& action) {
    const auto& [kind, unit, transfer] = action;
    std::set<uint32_t>& values = values_[unit];
    std::set<uint32_t>& gradients = gradients_[unit];
    const auto in_flight = std::pair(unit, transfer);
    switch (kind) {
      case Action::Kind::kGather: ASSERT_TRUE(values.insert(transfer).second); break;
      case Action::Kind::kJoin: ASSERT_EQ(values.size(), layout_.units[unit].value_transfers.size()); break;
      case Action::Kind::kFree: values.clear(); break;
      case Action::Kind::kOpen:
        ASSERT_TRUE(gradients.empty());
        for (uint32_t t = 0; t < layout_.units[unit].gradient_transfers.size(); ++t) gradients.insert(t);
        break;
      case Action::Kind::kReduce:
        ASSERT_TRUE(gradients.contains(transfer));
        ASSERT_TRUE(in_flight_.insert(in_flight).second);
        ASSERT_LE(in_flight_.size(), 2u);
        break;
      case Action::Kind::kRetire:
        ASSERT_EQ(in_flight_.erase(in_flight), 1u);
        ASSERT_EQ(gradients.erase(transfer), 1u);
        break;
      case Action::Kind::kDiscard: FAIL() << "nothing is discarded here";
    }
  }

  template <class OffsetOf>
  void expect_apart(const std::vector<std::set<uint32_t>>& held, std::vector<Transfer> UnitLayout::*transfers,
                    OffsetOf offset_of) {
    std::map<size_t, size_t> blocks;  // begin -> end
    for (UnitId u = 0; u < held.size(); ++u) {
      for (const uint32_t t : held[u]) {
        const Transfer& transfer = (layout_.units[u].*transfers)[t];
        if (!offset_of(u)) continue;  // memory of its own
        const size_t begin = *offset_of(u) + transfer.begin_bytes;
        ASSERT_TRUE(blocks.emplace(begin, begin + transfer.bytes).second);
      }
    }
    size_t end = 0;
    for (const auto& [begin, block_end] : blocks) {
      ASSERT_LE(end, begin);
      end = block_end;
    }
  }

  const Layout& layout_;
  Schedule schedule_;
  std::vector<std::set<uint32_t>> values_;     // transfers that are gathered, by unit
  std::vector<std::set<uint32_t>> gradients_;  // transfers that are open or in flight
  std::set<std::pair<UnitId, uint32_t>> in_flight_;
};

TEST(ZeroBuckets, KeepTheirBoundsInAnyOrder) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<size_t> counts(2 + random() % 6);
    for (size_t& count : counts) count = 1 + random() % 4000;
    ZeroOptions options;
    options.prefetch_units = static_cast<int>(random() % 4);
    options.bucket_bytes = 512 + random() % 4096;
    auto units = chain(counts);
    const bool tied = random() % 3 == 0;
    if (tied) {
      units.back().parameters.push_back(parameter("t", {counts[0]}));
      units.back().parameters.back().tied_to = "u0.w";
    }
    if (random() % 2 == 0) options.gathered_bytes_limit = 1 + random() % 32768;
    const Layout layout = layout_of(units, 2 + static_cast<int>(random() % 3), options);
    RandomWalk walk(layout, options);
    const bool nests = random() % 3 == 0;
    for (int call = 0; call < 100 && !::testing::Test::HasFatalFailure(); ++call) {
      const auto unit = static_cast<UnitId>(random() % counts.size());
      const auto inner = static_cast<UnitId>(random() % counts.size());
      const Pass pass = random() % 2 == 0 ? kForward : kBackward;
      walk.before(unit, pass);
      if (nests && inner != unit) {
        walk.before(inner, pass);
        walk.after(inner, pass);
      } else if (!nests && !tied) {
        ASSERT_TRUE(walk.schedule().gathered_offset(unit).has_value());
        ASSERT_LE(walk.gathered_bytes(), walk.schedule().gathered_capacity());
      }
      walk.after(unit, pass);
      if (random() % 10 == 0) walk.finish();
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace shardcomm::zero
