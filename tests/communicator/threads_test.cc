// Several threads of one rank on one communicator: an order that is agreed on, one that is not, and what each call
// waits for.
#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

constexpr int kThreads = 3;

// Lets threads of one rank call in turn: thread t makes calls t, t + kThreads, ...
class Turns {
 public:
  void await(uint64_t turn) const {
    while (next_.load(std::memory_order_acquire) != turn) std::this_thread::yield();
  }
  void pass() { next_.fetch_add(1, std::memory_order_release); }

 private:
  std::atomic<uint64_t> next_{0};
};

class CallingThreads : public ::testing::TestWithParam<RankMode> {};

// On streams, so that a call returns before its operation has run, and its turn is passed on at once.
TEST_P(CallingThreads, CallInAnAgreedOrderOnStreams) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator first = rank.communicator(), second = rank.communicator();
    HostStream streams[kThreads] = {make_stream(), make_stream(), make_stream()};
    constexpr uint64_t kCalls = 120;
    std::vector<int64_t> sums(kCalls);
    Turns turns;
    const auto body = [&](uint64_t thread) {
      std::vector<Work> works;
      for (uint64_t call = thread; call < kCalls; call += kThreads) {
        turns.await(call);
        sums[call] = static_cast<int64_t>(call) + rank.rank();
        Communicator& comm = call % 2 == 0 ? first : second;
        const Result<Work> work = comm.all_reduce({&sums[call], &sums[call], 1, DType::kI64}, streams[thread].ref());
        turns.pass();
        ASSERT_TRUE(work.ok()) << work.status().to_string();
        works.push_back(work.value());
      }
      for (const Work& work : works) ASSERT_TRUE(work.synchronize(Clock::now() + 10s).ok());
    };
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < kThreads; ++t) threads.emplace_back(body, t);
    for (std::thread& thread : threads) thread.join();
    for (uint64_t call = 0; call < kCalls; ++call) EXPECT_EQ(sums[call], static_cast<int64_t>(2 * call) + 1);
  });
}

// A call on its own thread takes its place when it is entered: it waits there for those before it, on other threads'
// streams too.
TEST_P(CallingThreads, MixCallsOnStreamsAndOnTheirOwnThread) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    HostStream stream = make_stream();
    Turns turns;
    std::vector<uint32_t> values(40);
    std::thread other([&] {
      for (uint64_t call = 1; call < values.size(); call += 2) {
        turns.await(call);
        values[call] = 1;
        const Result<Work> work = comm.all_reduce({&values[call], &values[call], 1, DType::kU32}, stream.ref());
        turns.pass();
        ASSERT_TRUE(work.ok() && work->synchronize(Clock::now() + 10s).ok());
      }
    });
    for (uint64_t call = 0; call < values.size(); call += 2) {
      turns.await(call);
      values[call] = 1;
      const Result<Work> work = comm.all_reduce({&values[call], &values[call], 1, DType::kU32}, StreamRef::caller());
      turns.pass();
      ASSERT_TRUE(work.ok()) << work.status().to_string();
    }
    other.join();
    for (const uint32_t value : values) EXPECT_EQ(value, 2u);
  });
}

// A window takes several exchanges, which have their place in the order like a call.
TEST_P(CallingThreads, TakeTurnsWithTheMakingOfWindows) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    HostStream stream = make_stream();
    Turns turns;
    std::thread other([&] {
      for (uint64_t call = 1; call < 20; call += 2) {
        turns.await(call);
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        ASSERT_TRUE(comm.barrier(stream.ref()).ok());
        turns.pass();
      }
    });
    for (uint64_t call = 0; call < 20; call += 2) {
      turns.await(call);
      const Result<Window> window = comm.allocate_window(4096, "while others call");
      turns.pass();
      ASSERT_TRUE(window.ok()) << window.status().to_string();
    }
    other.join();
    ASSERT_TRUE(stream.ref().synchronize(Clock::now() + 10s).ok());
  });
}

TEST_P(CallingThreads, WhoseOrdersDifferBetweenRanksAreToldSo) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=5000");
    Turns turns;
    std::vector<Status> statuses(2);
    const auto body = [&](uint64_t thread) {
      // Rank 0: thread 0 first. Rank 1: thread 1 first.
      turns.await(rank.rank() == 0 ? thread : 1 - thread);
      std::thread next([&] {
        std::this_thread::sleep_for(30ms);
        turns.pass();
      });
      float value = 1, sum = 0;
      statuses[thread] = outcome(comm.all_reduce(
          {.in = &value, .out = &sum, .count = 1, .dtype = DType::kF32, .label = thread == 0 ? "loss" : "norm"},
          StreamRef::caller()));
      next.join();
    };
    std::thread first([&] { body(0); }), second([&] { body(1); });
    first.join();
    second.join();
    const Status health = comm.health();
    EXPECT_TRUE(failed_with(health, Code::kFailedPrecondition, {"'loss'", "'norm'"}));
  });
}

TEST_P(CallingThreads, EachHaveALimitOfTheirOwn) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=20000");
    ASSERT_TRUE(failed_with(comm.set_timeout(-1ms), Code::kInvalidArgument, {"-1"}));
    float value = 1, sum = 0;
    const auto call = [&](std::chrono::milliseconds timeout) {
      return outcome(comm.all_reduce({.in = &value, .out = &sum, .count = 1, .dtype = DType::kF32, .timeout = timeout},
                                     StreamRef::caller()));
    };
    EXPECT_TRUE(failed_with(call(-5ms), Code::kInvalidArgument, {"-5 ms is negative"}));
    ASSERT_TRUE(comm.set_timeout(50ms).ok());
    EXPECT_TRUE(outcome(comm.barrier(StreamRef::caller(), "in time")).ok());
    // Longer than the communicator's: it waits for a peer that is later than that.
    if (rank.rank() == 1) std::this_thread::sleep_for(150ms);
    EXPECT_TRUE(call(5000ms).ok());
    ASSERT_TRUE(comm.set_timeout(0ms).ok());  // the options', 20 s
    if (rank.rank() == 1) std::this_thread::sleep_for(100ms);
    EXPECT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    if (rank.rank() == 1) {
      while (comm.health().ok()) std::this_thread::sleep_for(5ms);
      return;
    }
    const Stopwatch watch;
    EXPECT_TRUE(failed_with(outcome(comm.barrier(StreamRef::caller(), "short", 200ms)), Code::kTimedOut, {"'short'"}));
    EXPECT_LT(watch.elapsed(), stretched(2000ms));
  });
}

TEST_P(CallingThreads, HearOfTheirWorkByCallback) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=300");
    HostStream stream = make_stream();
    std::atomic<int> well{0}, failed{0};
    const auto count = [&](const Status& status) { ++(status.ok() ? well : failed); };
    float value = 1, sum = 0;
    for (int i = 0; i < 20; ++i) {
      const Result<Work> work = comm.all_reduce({&value, &sum, 1, DType::kF32}, stream.ref());
      ASSERT_TRUE(work.ok());
      std::vector<std::thread> givers;
      for (int t = 0; t < 2; ++t) givers.emplace_back([&] { EXPECT_TRUE(work->on_done(count).ok()); });
      for (std::thread& giver : givers) giver.join();
      ASSERT_TRUE(work->synchronize(Clock::now() + 10s).ok());
      EXPECT_TRUE(work->on_done(count).ok());  // at once
    }
    EXPECT_TRUE(comm.barrier(StreamRef::caller())->on_done(count).ok());
    EXPECT_TRUE(failed_with(Work().on_done({}), Code::kInvalidArgument, {"empty callback"}));
    ASSERT_TRUE(stream.ref().synchronize(Clock::now() + 10s).ok());
    EXPECT_EQ(well.load(), 61);
    if (rank.rank() == 1) {
      while (comm.health().ok()) std::this_thread::sleep_for(5ms);
      return;
    }
    const Result<Work> late = comm.barrier(stream.ref());
    ASSERT_TRUE(late.ok() && late->on_done(count).ok());
    EXPECT_EQ(late->synchronize(Clock::now() + 10s).code(), Code::kTimedOut);
    ASSERT_FALSE(stream.ref().synchronize(Clock::now() + 10s).code() == Code::kTimedOut);
    EXPECT_EQ(failed.load(), 1);
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, CallingThreads, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace shardcomm::testing
