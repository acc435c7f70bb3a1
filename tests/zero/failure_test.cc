// What a rank is told when an operation of the engine fails: which unit's it was, once, and where that was noticed.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "tests/support/failure.h"
#include "tests/zero/model.h"

namespace shardcomm::testing {
namespace {

const StreamRef kCaller = StreamRef::caller();

std::vector<UnitSpec> units_named(const std::vector<std::string>& names) {
  std::vector<UnitSpec> units;
  for (const std::string& name : names) units.push_back({name, {{.name = "w", .shape = {64, 8}}}});
  return units;
}

// The units that a text speaks of, but for where the failure was noticed.
std::set<std::string> units_in(std::string text, const std::vector<std::string>& names) {
  text = text.substr(0, text.find("(noticed"));
  std::set<std::string> found;
  for (const std::string& name : names) {
    if (text.find(name) != std::string::npos) found.insert(name);
  }
  return found;
}

using Hook = std::function<Status(ZeroEngine&)>;
struct Noticing {
  std::string_view name;
  Hook hook;
};

const std::vector<std::string> kNames = {"first", "middle", "last"};

// Rank 1 does not come to the backward pass of the middle unit; rank 0 goes on and hears of it in one of its next
// calls.
void expect_middle_named(const Noticing& noticing) {
  run_ranks(2, RankMode::kThreads, [&](RankContext& rank) {
    SCOPED_TRACE(noticing.name);
    Communicator comm = rank.communicator("timeout_ms=300");
    ZeroEngine engine = must(ZeroEngine::create(comm, units_named(kNames), {.stage = 2}));
    must(fill_with_noise(engine));
    for (UnitId u = 0; u < 3; ++u) {
      must(engine.before(u, Pass::kForward, kCaller));
      must(engine.after(u, Pass::kForward, kCaller));
    }
    must(engine.before(2, Pass::kBackward, kCaller));
    must(engine.after(2, Pass::kBackward, kCaller));
    Status status;
    if (rank.rank() == 0) {
      must(engine.before(1, Pass::kBackward, kCaller));
      must(engine.after(1, Pass::kBackward, kCaller));
      while (comm.health().ok()) std::this_thread::sleep_for(5ms);
      status = noticing.hook(engine);
    } else {
      while (comm.health().ok()) std::this_thread::sleep_for(5ms);
      status = comm.health();
    }
    EXPECT_TRUE(failed_with(status, Code::kTimedOut, {"'reduce middle'"}));
    EXPECT_EQ(units_in(status.to_string(), kNames), std::set<std::string>{"middle"}) << status.to_string();
    // Nothing is lost: what comes later says the same.
    EXPECT_TRUE(failed_with(rank.rank() == 0 ? engine.synchronize(Clock::now() + 1s) : comm.health(), Code::kTimedOut,
                            {"'reduce middle'"}));
  });
}

TEST(FailedReduction, IsNamedByEveryCallThatNoticesIt) {
  const Noticing noticings[] = {
      {"the hooks of another unit",
       [](ZeroEngine& engine) {
         const Status before = engine.before(0, Pass::kBackward, kCaller);
         return before.ok() ? engine.after(0, Pass::kBackward, kCaller) : before;
       }},
      {"finish_step", [](ZeroEngine& engine) { return engine.finish_step(kCaller); }},
      {"synchronize", [](ZeroEngine& engine) { return engine.synchronize(Clock::now() + 1s); }},
      {"zero_gradients", [](ZeroEngine& engine) { return engine.zero_gradients(); }},
  };
  for (const Noticing& noticing : noticings) expect_middle_named(noticing);
}

// At stage 3 the gather that fails is another unit's, made ahead of its use.
TEST(FailedGather, IsNamedOnceHoweverItIsNoticed) {
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=300");
    ZeroEngine engine = must(ZeroEngine::create(comm, units_named(kNames), {.stage = 3, .prefetch_units = 2}));
    must(fill_with_noise(engine));
    if (rank.rank() == 1) {
      while (comm.health().ok()) std::this_thread::sleep_for(5ms);
      return;
    }
    (void)engine.before(0, Pass::kForward, kCaller);  // which may wait for its own gather, and fail
    while (comm.health().ok()) std::this_thread::sleep_for(5ms);
    const Status status = engine.before(2, Pass::kForward, kCaller);
    EXPECT_TRUE(failed_with(status, Code::kTimedOut, {"'gather first'"}));
    EXPECT_EQ(units_in(status.to_string(), kNames), std::set<std::string>{"first"}) << status.to_string();
  });
}

}  // namespace
}  // namespace shardcomm::testing
