// Work::on_done: each callback runs once, whether the work ends well, ends badly or never runs.
#include <latch>

#include "device/device.h"
#include "device/host_stream.h"
#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

TEST(OnDone, OfAFinishedWorkRunsAtOnceOnTheCallingThread) {
  run_ranks(1, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    const HostStream stream = make_stream();
    for (const StreamRef where : {StreamRef::caller(), stream.ref()}) {
      const Result<Work> work = comm.barrier(where);
      ASSERT_TRUE(outcome(work).ok());
      std::thread::id caller;
      ASSERT_TRUE(work.value()
                      .on_done([&](const Status& status) {
                        EXPECT_TRUE(status.ok());
                        caller = std::this_thread::get_id();
                      })
                      .ok());
      EXPECT_EQ(caller, std::this_thread::get_id());
      EXPECT_TRUE(failed_with(work.value().on_done(nullptr), Code::kInvalidArgument, {"callback"}));
    }
    bool ran = false;
    ASSERT_TRUE(Work().on_done([&](const Status& status) { ran = status.ok(); }).ok());
    EXPECT_TRUE(ran);
  });
}

// The work is done before its callbacks run, in the order in which they were given.
TEST(OnDone, RunsOnTheThreadThatFinishesTheWorkInOrder) {
  run_ranks(1, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    const HostStream stream = make_stream();
    std::latch opened(1), finished(3);
    ASSERT_TRUE(stream.ref().enqueue([&] { opened.wait(); }).ok());
    const Result<Work> work = comm.barrier(stream.ref());
    ASSERT_TRUE(work.ok());
    std::vector<int> order;
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(
          work.value()
              .on_done([&, i](const Status& status) {
                EXPECT_TRUE(status.ok() && work.value().done());
                EXPECT_TRUE(failed_with(stream.ref().synchronize(Clock::now() + 1s), Code::kFailedPrecondition, {}))
                    << "not on the stream's thread";
                order.push_back(i);
                finished.count_down();
              })
              .ok());
    }
    EXPECT_TRUE(order.empty());
    opened.count_down();
    finished.wait();
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  });
}

TEST(OnDone, OfAFailedWorkGetsItsStatus) {
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=100");
    if (rank.rank() == 1) {
      std::this_thread::sleep_for(stretched(300ms));
      return;
    }
    const HostStream stream = make_stream();
    std::vector<Status> told(2);
    std::latch finished(2);
    const Result<Work> works[] = {comm.barrier(stream.ref(), "late"), comm.barrier(stream.ref(), "behind it")};
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(works[i].ok());
      ASSERT_TRUE(works[i]
                      .value()
                      .on_done([&, i](const Status& status) {
                        told[i] = status;
                        finished.count_down();
                      })
                      .ok());
    }
    finished.wait();
    for (const Status& status : told) EXPECT_TRUE(failed_with(status, Code::kTimedOut, {"rank 1", "barrier"}));
  });
}

// Callbacks that are given while the work finishes: each runs exactly once.
TEST(OnDone, RacingWithTheEndLosesNone) {
  run_ranks(1, RankMode::kThreads, [](RankContext& rank) {
    constexpr int kRounds = 2000, kThreads = 2;
    Communicator comm = rank.communicator();
    const HostStream stream = make_stream();
    std::atomic<int> calls{0};
    for (int round = 0; round < kRounds; ++round) {
      const Result<Work> work = comm.barrier(stream.ref());
      ASSERT_TRUE(work.ok());
      const auto give = [&] { ASSERT_TRUE(work.value().on_done([&](const Status&) { calls.fetch_add(1); }).ok()); };
      std::thread other(give);
      give();
      other.join();
    }
    ASSERT_TRUE(stream.ref().synchronize(Clock::now() + 30s).ok());
    EXPECT_EQ(calls.load(), kRounds * kThreads);
  });
}

// A stream without a thread, so that what is put there is destroyed with it.
TEST(OnDone, OfAWorkThatNeverRunsIsAborted) {
  run_ranks(2, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    Status told[2];
    int calls = 0;
    Work works[2];
    if (rank.rank() == 0) {
      float value = 0;
      HostStream::Impl never("never runs");
      const StreamRef stream = StreamRef::host(&never);
      const Result<Work> made[] = {comm.barrier(stream), comm.send({&value, 1, DType::kF32, 1}, stream)};
      for (size_t i = 0; i < 2; ++i) {
        ASSERT_TRUE(made[i].ok());
        works[i] = made[i].value();
        ASSERT_TRUE(works[i]
                        .on_done([&, i](const Status& status) {
                          told[i] = status;
                          ++calls;
                        })
                        .ok());
      }
    }
    if (rank.rank() == 0) {
      EXPECT_EQ(calls, 2);
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_TRUE(failed_with(told[i], Code::kAborted, {"rank 0", "destroyed before"}));
        EXPECT_TRUE(works[i].done());
      }
    }
    EXPECT_TRUE(
        failed_with(outcome(comm.barrier(StreamRef::caller())), Code::kAborted, {"rank 0", "destroyed before"}));
  });
}

TEST(OnDoneDeathTest, AnExceptionOutOfItEndsTheProgram) {
  const auto throws = [] {
    const auto state = std::make_shared<Work::State>(0, "barrier", Deadline::max());
    (void)Work(1, state).on_done([](const Status&) { throw std::runtime_error("out of a callback"); });
    state->finish({});
  };
  EXPECT_DEATH(throws(), "out of a callback");
}

}  // namespace
}  // namespace shardcomm::testing
