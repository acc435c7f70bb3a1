// abort() and destruction: from any thread, at once, and never waiting for a peer.
#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

enum : size_t { kAbortedAt, kArrived };  // in SharedWords

class Abort : public ::testing::TestWithParam<RankMode> {};

TEST_P(Abort, FreesWaitersOnAllRanksAtOnce) {
  const SharedWords words;
  run_ranks(3, GetParam(), [&](RankContext& rank) {
    Communicator comm = rank.communicator();
    ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    if (rank.rank() == 0) {  // never calls, so that the others wait
      words.await(kAbortedAt, 1);
      const Clock::time_point deadline = Clock::now() + 2s;
      while (comm.health().ok() && Clock::now() < deadline) std::this_thread::sleep_for(1ms);
      EXPECT_LT(words.since(kAbortedAt), stretched(150ms));
    } else {
      std::thread aborter;
      if (rank.rank() == 1) {
        aborter = std::thread([&] {
          std::this_thread::sleep_for(150ms);  // by now all sleep in the kernel
          words.mark_now(kAbortedAt);
          const Stopwatch watch;
          comm.abort("enough is enough");
          EXPECT_LT(watch.elapsed(), stretched(20ms));
        });
      }
      const Status status = outcome(comm.barrier(StreamRef::caller()));
      EXPECT_LT(words.since(kAbortedAt), stretched(150ms));
      EXPECT_TRUE(failed_with(status, Code::kAborted, {"enough is enough", "rank 1"}));
      if (aborter.joinable()) aborter.join();
    }
    EXPECT_TRUE(failed_with(comm.health(), Code::kAborted, {"enough is enough", "rank 1"}));
    EXPECT_TRUE(failed_with(comm.barrier(StreamRef::caller()).status(), Code::kAborted, {"enough is enough"}));
    EXPECT_TRUE(failed_with(comm.allocate_window(1, "w").status(), Code::kAborted, {"enough is enough"}));
    EXPECT_TRUE(failed_with(comm.split(0, 0).status(), Code::kAborted, {"enough is enough"}));
  });
}

TEST_P(Abort, EndsEverythingThatIsQueued) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    HostStream first = make_stream(), second = make_stream();
    ASSERT_TRUE(outcome(comm.barrier(first.ref())).ok());
    if (rank.rank() == 1) {
      std::this_thread::sleep_for(200ms);
      const Stopwatch watch;
      comm.abort("no more");
      EXPECT_LT(watch.elapsed(), stretched(20ms));
      return;
    }
    std::vector<float> in(50'000), out(100'000);
    std::vector<Work> works;
    for (int i = 0; i < 40; ++i) {
      const StreamRef on = i % 2 == 0 ? first.ref() : second.ref();
      Result<Work> work = comm.all_gather({in.data(), out.data(), in.size(), DType::kF32}, on);
      ASSERT_TRUE(work.ok());
      works.push_back(*work);
    }
    const Stopwatch watch;
    for (const Work& work : works)
      EXPECT_TRUE(failed_with(work.synchronize(Clock::now() + 5s), Code::kAborted, {"no more"}));
    EXPECT_LT(watch.elapsed(), stretched(600ms));
  });
}

// An operation whose turn has not come, because a stream before it is busy with something else, is a waiter too.
TEST_P(Abort, FreesThoseWhoWaitForTheirTurn) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    HostStream stream = make_stream();
    ASSERT_TRUE(outcome(comm.barrier(stream.ref())).ok());
    std::atomic<bool> free{false};
    ASSERT_TRUE(stream.ref()
                    .enqueue([&] {
                      while (!free) std::this_thread::sleep_for(1ms);
                    })
                    .ok());
    const Result<Work> first = comm.barrier(stream.ref());
    ASSERT_TRUE(first.ok());
    std::thread aborter([&] {
      std::this_thread::sleep_for(100ms);
      if (rank.rank() == 1) comm.abort("no turn for you");
    });
    const Stopwatch watch;
    const Status status = outcome(comm.barrier(StreamRef::caller()));
    EXPECT_LT(watch.elapsed(), stretched(400ms));
    EXPECT_TRUE(failed_with(status, Code::kAborted, {"no turn for you", "rank 1"}));
    free = true;
    EXPECT_TRUE(failed_with(outcome(first), Code::kAborted, {"no turn for you"}));
    aborter.join();
  });
}

// By their bell, not by the look that every sleeper takes now and then: the best of several is far below that.
TEST_P(Abort, SleepersAreWokenByIt) {
  const SharedWords words;
  run_ranks(2, GetParam(), [&](RankContext& rank) {
    std::chrono::milliseconds best = 1h;
    Result<std::unique_ptr<Store>> store = open_store(rank.next_store_uri());
    ASSERT_TRUE(store.ok());
    for (int round = 0; round < 8; ++round) {
      Result<Communicator> comm =
          Communicator::create(**store, {.rank = rank.rank(), .size = rank.size(), .device = {}},
                               Options::parse("timeout_ms=20000").value());
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      if (rank.rank() == 1) {
        std::this_thread::sleep_for(15ms);
        words.mark_now(kAbortedAt);
        comm->abort("wake up");
        words.await(kArrived, round + 1);  // going away would ring, too
        continue;
      }
      EXPECT_TRUE(failed_with(outcome(comm->barrier(StreamRef::caller())), Code::kAborted, {"wake up"}));
      best = std::min(best, words.since(kAbortedAt));
      words[kArrived].fetch_add(1);
    }
    if (rank.rank() == 0) {
      EXPECT_LT(best, 15ms);
    }
  });
}

TEST_P(Abort, TheFirstReasonStays) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    if (rank.rank() == 0) {
      comm.abort("the first reason");
      comm.abort("another reason");
    } else {
      while (comm.health().ok()) std::this_thread::sleep_for(1ms);
      comm.abort("a late reason");
    }
    EXPECT_TRUE(failed_with(comm.health(), Code::kAborted, {"the first reason"}));
  });
}

TEST_P(Abort, ReasonsOfAnyLengthAreCarried) {
  for (const std::string& reason : {std::string(), std::string(100'000, 'x'), std::string("two\nlines")}) {
    run_ranks(2, GetParam(), [&](RankContext& rank) {
      Communicator comm = rank.communicator();
      if (rank.rank() == 0) comm.abort(reason);
      const Clock::time_point deadline = Clock::now() + 5s;
      while (comm.health().ok() && Clock::now() < deadline) std::this_thread::sleep_for(1ms);
      EXPECT_TRUE(failed_with(comm.health(), Code::kAborted, {"rank 0", reason.substr(0, 50)}));
    });
  }
}

// Many threads of every rank, all at the same time.
TEST_P(Abort, MayComeFromManyThreadsAtOnce) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        comm.abort("thread " + std::to_string(i));
        EXPECT_TRUE(failed_with(comm.health(), Code::kAborted, {"thread "}));
      });
    }
    EXPECT_TRUE(failed_with(outcome(comm.barrier(StreamRef::caller())), Code::kAborted, {"thread "}));
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_P(Abort, DestroyingNeverWaits) {
  const SharedWords words;
  run_ranks(2, GetParam(), [&](RankContext& rank) {
    HostStream stream = make_stream();
    std::vector<float> in(100'000), out(200'000);
    std::optional<Communicator> comm(rank.communicator());
    ASSERT_TRUE(outcome(comm->barrier(stream.ref())).ok());
    if (rank.rank() == 1) {  // does not take part while rank 0 waits and goes
      words.await(kArrived, 1);
      EXPECT_TRUE(failed_with(outcome(comm->all_gather({in.data(), out.data(), in.size(), DType::kF32}, stream.ref())),
                              Code::kAborted, {"rank 0"}));
      return;
    }
    std::vector<Work> works;
    for (int i = 0; i < 5; ++i) {
      Result<Work> work = comm->all_gather({in.data(), out.data(), in.size(), DType::kF32}, stream.ref());
      ASSERT_TRUE(work.ok());
      works.push_back(*work);
    }
    std::this_thread::sleep_for(100ms);
    const Stopwatch watch;
    comm.reset();
    EXPECT_LT(watch.elapsed(), stretched(50ms));
    for (const Work& work : works)
      EXPECT_TRUE(failed_with(work.synchronize(Clock::now() + 5s), Code::kAborted, {"rank 0"}));
    EXPECT_LT(watch.elapsed(), stretched(200ms));
    words[kArrived].store(1);
  });
}

// A finished operation is not in flight: going then is no failure for those who are not done yet.
TEST_P(Abort, DestroyingAfterTheLastAsynchronousOperationIsInOrder) {
  for (int round = 0; round < 10; ++round) {
    run_ranks(3, GetParam(), [](RankContext& rank) {
      HostStream stream = make_stream();
      std::vector<float> in(1000, 1.0f), out(3000);
      std::optional<Communicator> comm(rank.communicator());
      Work last;
      for (int i = 0; i < 5; ++i)
        last = comm->all_gather({in.data(), out.data(), in.size(), DType::kF32}, stream.ref()).value();
      const Status status = last.synchronize(Clock::now() + 5s);
      comm.reset();
      EXPECT_TRUE(status.ok()) << status.to_string();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Abort, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace shardcomm::testing
