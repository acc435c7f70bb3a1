// How ranks wait: asleep, at hardly any cost, and awake at once when what they wait for comes.
#include <pthread.h>
#include <sched.h>

#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

class Idle : public ::testing::TestWithParam<RankMode> {};

// By whoever it waits for, and not by the look that every sleeper takes now and then: half of them within a few ms.
TEST_P(Idle, ASleeperIsWokenByTheOneItWaitsFor) {
  const SharedWords words;
  run_ranks(2, GetParam(), [&](RankContext& rank) {
    Communicator comm = rank.communicator("spin_us=0");
    HostStream stream = make_stream();
    std::vector<std::chrono::milliseconds> waits;
    for (int round = 0; round < 30; ++round) {
      const StreamRef on = round % 2 == 0 ? StreamRef::caller() : stream.ref();
      if (rank.rank() == 1) {
        std::this_thread::sleep_for(3ms);
        words.mark_now(0);
      }
      ASSERT_TRUE(outcome(comm.barrier(on)).ok());
      waits.push_back(words.since(0));
      ASSERT_TRUE(outcome(comm.barrier(on)).ok());
    }
    std::sort(waits.begin(), waits.end());
    EXPECT_LT(waits[waits.size() / 2], 10ms);
  });
}

std::chrono::nanoseconds cpu_time_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

// After the first moments, in which it spins, a rank that waits is as good as absent: less than a hundredth of a core,
// measured from beside it over the two seconds of its wait, be it in the call itself or in a stream.
TEST_P(Idle, AnIdleWaitCostsLessThanAHundredthOfACore) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    HostStream stream = make_stream();
    for (const bool in_stream : {false, true}) {
      const StreamRef on = in_stream ? stream.ref() : StreamRef::caller();
      ASSERT_TRUE(outcome(comm.barrier(on)).ok());
      if (rank.rank() == 1) {
        std::this_thread::sleep_for(2s);
        ASSERT_TRUE(outcome(comm.barrier(on)).ok());
        continue;
      }
      clockid_t clock{};  // of the thread that waits
      ASSERT_TRUE(on.enqueue([&] { ASSERT_EQ(pthread_getcpuclockid(pthread_self(), &clock), 0); }).ok());
      ASSERT_TRUE(on.synchronize(Clock::now() + 5s).ok());
      std::chrono::nanoseconds used{};
      std::thread observer([&] {
        std::this_thread::sleep_for(10ms);
        used = cpu_time_of(clock);
        std::this_thread::sleep_for(1900ms);
        used = cpu_time_of(clock) - used;
      });
      const Status waited = outcome(comm.barrier(on));
      observer.join();
      EXPECT_TRUE(waited.ok()) << waited.to_string();
      EXPECT_LT(used, stretched(19ms)) << "of 1900 ms, " << (in_stream ? "in a stream" : "in the call");
    }
  });
}

// Ranks that had a core each when they met, and then share one: a rank that spun there would hold its peer up for 20
// ms.
TEST_P(Idle, ARankDoesNotSpinOnTheCoreThatItsPeerNeeds) {
  cpu_set_t usable;
  ASSERT_EQ(sched_getaffinity(0, sizeof usable, &usable), 0);
  if (CPU_COUNT(&usable) < 2) GTEST_SKIP() << "one core: ranks that outnumber the cores give way";
  int first = 0;
  while (!CPU_ISSET(first, &usable)) ++first;
  run_ranks(2, GetParam(), [&](RankContext& rank) {
    Communicator comm = rank.communicator("spin_us=20000");
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());  // announces the core
    const std::chrono::nanoseconds begin = thread_cpu_time();
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    EXPECT_LT(thread_cpu_time() - begin, stretched(200ms)) << "of processor time, for 100 barriers";
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, Idle, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace shardcomm::testing
