// The states of an engine, and what is refused in each; parameters that are written outside an update; waiting.
#include <gtest/gtest.h>

#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "shardcomm/checkpoint.h"
#include "tests/support/rank_group.h"
#include "tests/zero/model.h"

namespace shardcomm::testing {
namespace {

const StreamRef kCaller = StreamRef::caller();
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

Deadline in(milliseconds time) { return Clock::now() + time * kPatience; }

// One dtype a unit, so that each kind of memory is there, and a frozen unit of both.
const std::vector<UnitSpec> kUnits = {{"wide", {{.name = "w", .shape = {30, 5}}}},
                                      {"narrow", {{.name = "w", .shape = {40, 5}, .dtype = DType::kBF16}}},
                                      {"frozen",
                                       {{.name = "w", .shape = {64}, .trainable = false},
                                        {.name = "n", .shape = {64}, .dtype = DType::kBF16, .trainable = false}}}};
enum : UnitId { kWide, kNarrow, kFrozen };

Status use(ZeroEngine& engine, UnitId unit, Pass pass) {
  SHARDCOMM_TRY(engine.before(unit, pass, kCaller));
  for (const ParameterView& view : engine.parameters(unit)) add_to_gradient(view, std::vector<float>(view.count, 1));
  return engine.after(unit, pass, kCaller);
}

Status step(ZeroEngine& engine) {
  for (const UnitId unit : {kWide, kNarrow, kFrozen}) SHARDCOMM_TRY(use(engine, unit, Pass::kForward));
  for (const UnitId unit : {kFrozen, kNarrow, kWide}) SHARDCOMM_TRY(use(engine, unit, Pass::kBackward));
  return engine.finish_step(kCaller);
}

// The first piece of a unit; null where this rank has none.
const ShardPiece* piece_of(const ZeroEngine& engine, UnitId unit) {
  for (const ShardPiece& piece : engine.pieces()) {
    if (piece.unit == unit) return &piece;
  }
  return nullptr;
}

void expect_refusal(const Status& status, std::initializer_list<std::string> words) {
  EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status.to_string();
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string_view::npos) << "'" << word << "' in: " << status.to_string();
  }
}

void on_stages(int ranks, const std::function<void(Communicator&, int stage)>& body) {
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    run_ranks(ranks, RankMode::kThreads, [&](RankContext& rank) {
      Communicator comm = rank.communicator();
      body(comm, stage);
    });
  }
}

ZeroEngine filled_engine(Communicator& comm, int stage) {
  ZeroEngine engine = must(ZeroEngine::create(comm, kUnits, {.stage = stage}));
  must(fill_with_noise(engine));
  return engine;
}

TEST(ZeroUpdate, RefusesCallsThatDoNotFitTheState) {
  on_stages(2, [](Communicator& comm, int stage) {
    ZeroEngine engine = filled_engine(comm, stage);
    const std::string rank = "rank " + std::to_string(comm.rank()) + ": ";
    expect_refusal(engine.publish(), {rank, "publish", "no update is open", "begin_update()"});
    expect_refusal(engine.publish(kNarrow), {rank, "publish(narrow)", "no update is open"});

    must(engine.before(kWide, Pass::kBackward, kCaller));
    expect_refusal(engine.begin_update(), {rank, "begin_update", "wide is still between", "after()"});
    must(engine.after(kWide, Pass::kBackward, kCaller));
    expect_refusal(engine.begin_update(), {rank, "begin_update", "not final", "finish_step()"});
    expect_refusal(engine.gradient_norm().status(), {rank, "gradient_norm", "not final", "finish_step()"});
    must(engine.finish_step(kCaller));

    must(engine.begin_update());
    expect_refusal(engine.begin_update(), {rank, "begin_update", "open already", "publish()"});
    expect_refusal(engine.before(kWide, Pass::kForward, kCaller), {rank, "before(wide)", "published", "publish()"});
    expect_refusal(engine.finish_step(kCaller), {rank, "finish_step", "published", "publish()"});
    expect_refusal(engine.synchronize(in(seconds(1))), {rank, "synchronize", "publish()"});
    EXPECT_EQ(engine.publish(9).code(), Code::kInvalidArgument);
    must(engine.publish(kNarrow));
    expect_refusal(engine.publish(kNarrow), {rank, "publish(narrow)", "once"});
    must(engine.publish());
    must(engine.zero_gradients());

    must(step(engine));
    EXPECT_GT(must(engine.gradient_norm()), 0);
  });
}

TEST(ZeroUpdate, RefusesUnreducedGradients) {
  on_stages(2, [](Communicator& comm, int stage) {
    ZeroEngine engine = filled_engine(comm, stage);
    engine.set_gradient_sync(false);
    must(step(engine));
    expect_refusal(engine.begin_update(), {"begin_update", "have not been reduced", "gradient sync"});
    must(engine.zero_gradients());
    must(engine.begin_update());
    must(engine.publish());
  });
}

// What can be written: an f32 value, a bf16 master, a bf16 value, frozen values.
struct Target {
  const char* name;
  UnitId unit;
  std::byte* (*address)(const ShardPiece&);
};
const Target kTargets[] = {
    {"f32 value", kWide, [](const ShardPiece& piece) { return piece.value; }},
    {"bf16 master", kNarrow, [](const ShardPiece& piece) { return reinterpret_cast<std::byte*>(piece.master); }},
    {"bf16 value", kNarrow, [](const ShardPiece& piece) { return piece.value; }},
    {"frozen value", kFrozen, [](const ShardPiece& piece) { return piece.value; }},
};

void flip(std::byte* byte) { *byte ^= std::byte{0x10}; }

TEST(ZeroUpdate, FindsWritesOutsideAnUpdateAtTheNextCall) {
  const auto directory = std::filesystem::temp_directory_path() / ("update-" + std::to_string(getpid()));
  on_stages(2, [&](Communicator& comm, int stage) {
    ZeroEngine engine = filled_engine(comm, stage);
    AdamW adam = must(AdamW::create(engine, {}));
    must(step(engine));
    for (const Target& target : kTargets) {
      SCOPED_TRACE(target.name);
      const ShardPiece* piece = piece_of(engine, target.unit);
      ASSERT_NE(piece, nullptr);
      flip(target.address(*piece));
      const std::string rank = "rank " + std::to_string(comm.rank()) + ": ", unit = kUnits[target.unit].name;
      expect_refusal(
          engine.before(kWide, Pass::kForward, kCaller),
          {rank, "before(wide)", "unit " + unit + " have been written outside an update", "ShardPiece::master"});
      expect_refusal(engine.begin_update(), {rank, "begin_update", unit, "publish()"});
      expect_refusal(engine.synchronize(in(seconds(1))), {rank, "synchronize", unit});
      expect_refusal(adam.step(0.1f), {rank, unit});
      EXPECT_EQ(adam.steps(), 0u);
      expect_refusal(save_checkpoint(engine, adam, directory, 1, "{}").status(), {"rank 0: ", unit});
      flip(target.address(*piece));
      must(engine.synchronize(in(seconds(20))));
    }
    flip(kTargets[0].address(*piece_of(engine, kWide)));
    must(fill_with_noise(engine));  // sets them again
    must(step(engine));
  });
  std::filesystem::remove_all(directory);
}

// An optimizer of the time before begin_update() and publish(): all values, at whatever size.
TEST(ZeroUpdate, FindsAnOptimizerThatDoesNotPublish) {
  const std::vector<UnitSpec> units = {{"large", {{.name = "w", .shape = {1000, 300}}}}};
  on_stages(2, [&](Communicator& comm, int stage) {
    ZeroEngine engine = must(ZeroEngine::create(comm, units, {.stage = stage}));
    must(fill_with_noise(engine));
    must(use(engine, 0, Pass::kBackward));
    must(engine.finish_step(kCaller));
    for (const ShardPiece& piece : engine.pieces()) {
      auto* values = reinterpret_cast<float*>(piece.value);
      for (size_t i = 0; i < piece.count; ++i) values[i] -= 0.01f * piece.gradient[i];
    }
    expect_refusal(engine.before(0, Pass::kForward, kCaller), {"before(large)", "outside an update"});
  });
}

// Views are the parameters' own memory at stages 0 to 2, and a copy at stage 3.
TEST(ZeroUpdate, FindsWritesToViewsOnTheirOwner) {
  on_stages(2, [](Communicator& comm, int stage) {
    ZeroEngine engine = filled_engine(comm, stage);
    const auto expected = all_parameters(engine);
    for (const UnitId unit : {kWide, kNarrow, kFrozen}) {
      SCOPED_TRACE(kUnits[unit].name);
      must(engine.before(unit, Pass::kBackward, kCaller));
      for (const ParameterView& view : engine.parameters(unit)) {
        for (size_t i = 0; i < view.count * size_of(view.dtype); ++i) flip(view.value + i);
      }
      const Status left = engine.after(unit, Pass::kBackward, kCaller);
      if (stage == 3) {
        must(left);
      } else {
        expect_refusal(left, {"after(" + kUnits[unit].name + ")", "outside an update"});
        expect_refusal(engine.finish_step(kCaller), {"outside an update"});  // once more, for UnitScope
      }
      must(engine.finish_step(kCaller));
      if (stage < 3) must(fill_with_noise(engine));
    }
    EXPECT_TRUE(all_parameters(engine) == expected);
  });
}

TEST(ZeroUpdate, FindsValuesWrittenInPlaceOfTheirMasters) {
  on_stages(2, [](Communicator& comm, int stage) {
    ZeroEngine engine = filled_engine(comm, stage);
    must(step(engine));
    must(engine.begin_update());
    flip(piece_of(engine, kNarrow)->value);
    expect_refusal(engine.publish(), {"rank", "publish(narrow)", "bf16", "ShardPiece::master"});
    must(fill_with_noise(engine));  // ends the update
    must(step(engine));
  });
}

// One rank writes a value itself. Its update is refused, its peer's is not; at stages 1 and 2 the peer's needs gathers
// of both. Once the rank has set its parameters again, the two are in step.
enum class Update { kAdamW, kAtOnce, kByUnit };
Status update_wrongly(ZeroEngine& engine, AdamW& adam, Update kind, bool wrongly) {
  if (kind == Update::kAdamW) {
    if (wrongly) flip(piece_of(engine, kWide)->value);
    return adam.step(0.1f);
  }
  SHARDCOMM_TRY(engine.begin_update());
  if (wrongly) flip(piece_of(engine, kNarrow)->value);
  if (kind == Update::kByUnit) SHARDCOMM_TRY(engine.publish(kNarrow));
  return engine.publish();
}

TEST(ZeroUpdate, ARefusedRankDoesNotHoldUpItsPeers) {
  for (const Update kind : {Update::kAdamW, Update::kAtOnce, Update::kByUnit}) {
    SCOPED_TRACE("update " + std::to_string(static_cast<int>(kind)));
    const auto start = Clock::now();
    on_stages(2, [&](Communicator& comm, int stage) {
      ZeroEngine engine = filled_engine(comm, stage);
      AdamW adam = must(AdamW::create(engine, {}));
      must(step(engine));
      const bool errs = comm.rank() == 0;
      const Status updated = update_wrongly(engine, adam, kind, errs);
      if (errs) {
        expect_refusal(updated, {"rank 0: ", kind == Update::kAdamW ? "unit wide" : "publish(narrow)", "written"});
        if (kind != Update::kByUnit) {
          expect_refusal(engine.before(kWide, Pass::kForward, kCaller), {"rank 0: ", "outside an update"});
        }
        must(fill_with_noise(engine));
      } else {
        must(updated);
      }
      must(engine.zero_gradients());
      must(step(engine));
      must(adam.step(0.1f));
      must(engine.synchronize(in(seconds(20))));
    });
    EXPECT_LT(Clock::now() - start, seconds(10) * kPatience);
  }
}

TEST(ZeroUpdate, AnOptimizerFollowsAnEngineThatIsMoved) {
  on_stages(2, [](Communicator& comm, int stage) {
    ZeroEngine first = filled_engine(comm, stage);
    AdamW adam = must(AdamW::create(first, {}));
    ZeroEngine second = std::move(first);
    must(step(second));
    must(adam.step(0.1f));
    first = std::move(second);
    must(step(first));
    must(adam.step(0.1f));
    EXPECT_EQ(adam.steps(), 2u);
    EXPECT_EQ(&*first.ref(), &first);
    must(first.synchronize(in(seconds(20))));
  });
}

// What is accumulated afterwards would go to gradients that have been discarded.
TEST(ZeroUpdate, RefusesToZeroGradientsOfAnOpenUnit) {
  on_stages(2, [](Communicator& comm, int stage) {
    ZeroEngine engine = filled_engine(comm, stage);
    must(engine.before(kWide, Pass::kBackward, kCaller));
    add_to_gradient(engine.parameters(kWide)[0], std::vector<float>(150, 1));
    expect_refusal(engine.zero_gradients(), {"rank", "zero_gradients", "wide is still between", "after()"});
    add_to_gradient(engine.parameters(kWide)[0], std::vector<float>(150, 1));
    must(engine.after(kWide, Pass::kBackward, kCaller));
    must(engine.finish_step(kCaller));
    const ShardPiece* piece = piece_of(engine, kWide);
    EXPECT_EQ(piece->gradient[0], 4);  // twice 1 on two ranks
    must(engine.zero_gradients());
    EXPECT_EQ(piece->gradient[0], 0);
  });
}

// The gather of new values does not hold up the rank that is ahead.
TEST(ZeroUpdate, PublishDoesNotWaitAndSynchronizeDoes) {
  for (const int stage : {1, 2}) {
    run_ranks(2, RankMode::kThreads, [&](RankContext& rank) {
      Communicator comm = rank.communicator();
      ZeroEngine engine = filled_engine(comm, stage);
      must(step(engine));
      must(engine.begin_update());
      if (rank.rank() == 1) std::this_thread::sleep_for(milliseconds(500) * kPatience);
      const auto start = Clock::now();
      must(engine.publish(kWide));
      must(engine.publish());
      must(engine.zero_gradients());
      if (rank.rank() == 0) {
        EXPECT_LT(Clock::now() - start, milliseconds(250) * kPatience);
        const Status early = engine.synchronize(in(milliseconds(1)));
        EXPECT_EQ(early.code(), Code::kTimedOut) << early.to_string();
      }
      must(engine.synchronize(in(seconds(20))));
      EXPECT_EQ(engine.state(kWide), UnitState::kGathered);
      must(step(engine));
    });
  }
}

TEST(ZeroUpdate, WorksBeforeTheFirstStep) {
  on_stages(2, [](Communicator& comm, int stage) {
    ZeroEngine engine = must(ZeroEngine::create(comm, kUnits, {.stage = stage}));
    must(engine.begin_update());
    for (const ShardPiece& piece : engine.pieces()) {
      if (piece.master != nullptr) std::fill_n(piece.master, piece.count, 2.0f);
    }
    must(engine.publish());
    const auto all = all_parameters(engine);
    EXPECT_EQ(all[0], std::vector<float>(150, 2));
    EXPECT_EQ(all[1], std::vector<float>(200, 2));
  });
}

// --- destruction ---

// A task that a test holds back.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

// The engine's memory is left to the stream; nothing hangs and nothing is freed under it.
TEST(ZeroDestruction, IsBoundedWhileAComputeStreamIsBusy) {
  run_ranks(1, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=300,log=off");
    Gate gate;
    HostStream compute = must(HostStream::create("compute"));
    bool intact = false;
    {
      ZeroEngine engine = must(ZeroEngine::create(comm, kUnits, {.stage = 3}));
      must(fill_with_noise(engine));
      must(engine.before(kWide, Pass::kForward, compute.ref()));
      const ParameterView view = engine.parameters(kWide)[0];
      must(compute.ref().enqueue([&, view] {
        gate.wait();
        intact = values_of(view)[0] == 0.3f * noise("wide.w", 0, 0);
      }));
      must(engine.after(kWide, Pass::kForward, compute.ref()));
      const auto start = Clock::now();
      engine = must(ZeroEngine::create(comm, kUnits, {.stage = 0}));  // destroys the first
      EXPECT_LT(Clock::now() - start, seconds(5) * kPatience);
    }
    gate.open();
    must(compute.ref().synchronize(in(seconds(20))));
    EXPECT_TRUE(intact);
  });
}

}  // namespace
}  // namespace shardcomm::testing
