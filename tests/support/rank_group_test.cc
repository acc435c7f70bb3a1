// The harness itself: every way in which a rank can go wrong is a failure of the test that names the rank.
#include "tests/support/rank_group.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <optional>
#include <stdexcept>
#include <thread>

namespace shardcomm::testing {
namespace {

using namespace std::chrono_literals;

// Runs what must fail and returns the failures' texts, without failing this test.
std::string failures_of(RankMode mode, const std::function<void(RankContext&)>& function, const RankRun& run = {}) {
  using Interceptor = ::testing::ScopedFakeTestPartResultReporter;
  ::testing::TestPartResultArray caught;
  std::optional<Interceptor> interceptor;
  interceptor.emplace(Interceptor::INTERCEPT_ALL_THREADS, &caught);
  run_ranks(
      3, mode,
      [&](RankContext& rank) {
        if (mode == RankMode::kProcesses) interceptor.reset();  // the child's copy: there it would hide all failures
        function(rank);
      },
      run);
  interceptor.reset();
  std::string text;
  for (int i = 0; i < caught.size(); ++i) (text += caught.GetTestPartResult(i).message()) += "\n";
  return text;
}

TEST(RankGroup, RunsEveryRankOnceAndReturnsWhatItPublished) {
  for (RankMode mode : rank_modes()) {
    const RankReport report = run_ranks(5, mode, [](RankContext& rank) {
      rank.publish("I am " + std::to_string(rank.rank()));
      rank.publish(" of " + std::to_string(rank.size()));
    });
    EXPECT_TRUE(report.ok());
    ASSERT_EQ(report.published.size(), 5u);
    for (int rank = 0; rank < 5; ++rank)
      EXPECT_EQ(report.published[static_cast<size_t>(rank)], "I am " + std::to_string(rank) + " of 5") << name(mode);
  }
}

TEST(RankGroup, ThreadsShareMemoryAndProcessesDoNot) {
  std::atomic<int> count{0};
  run_ranks(3, RankMode::kThreads, [&](RankContext&) { ++count; });
  EXPECT_EQ(count, 3);
  run_ranks(3, RankMode::kProcesses, [&](RankContext&) { ++count; });
  EXPECT_EQ(count, 3);
}

TEST(RankGroup, FailuresOfEveryRankAreReportedWithTheRank) {
  for (RankMode mode : rank_modes()) {
    const std::string text = failures_of(mode, [](RankContext& rank) {
      if (rank.rank() == 0) return;
      EXPECT_EQ(rank.rank(), 17);
      if (rank.rank() == 2) throw std::runtime_error("thrown here");
    });
    EXPECT_NE(text.find("rank 1 of 3"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 2 of 3"), std::string::npos) << text;
    EXPECT_NE(text.find("17"), std::string::npos) << text;
    EXPECT_NE(text.find("thrown here"), std::string::npos) << text;
    EXPECT_EQ(text.find("rank 0 of 3"), std::string::npos) << text;
  }
}

TEST(RankGroup, RanksThatDieAreReported) {
  const std::string killed = failures_of(RankMode::kProcesses, [](RankContext& rank) {
    if (rank.rank() == 1) raise(SIGKILL);
    if (rank.rank() == 2) _exit(3);
  });
  EXPECT_NE(killed.find("rank 1 of 3: killed by Killed"), std::string::npos) << killed;
  EXPECT_NE(killed.find("rank 2 of 3: exited with 3 before its end"), std::string::npos) << killed;
}

TEST(RankGroup, HangingProcessesAreKilledAtTheDeadline) {
  const auto start = std::chrono::steady_clock::now();
  const std::string text = failures_of(RankMode::kProcesses,
                                       [](RankContext& rank) {
                                         if (rank.rank() == 2) std::this_thread::sleep_for(60s);
                                       },
                                       {.deadline = 300ms});
  EXPECT_NE(text.find("rank 2 of 3: still ran after 300 ms"), std::string::npos) << text;
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

TEST(RankGroup, DoomedRanksMayDieOrStop) {
  const RankReport report = run_ranks(3, RankMode::kProcesses,
                                      [](RankContext& rank) {
                                        if (rank.rank() == 0) raise(SIGKILL);
                                        if (rank.rank() == 1) raise(SIGSTOP);
                                        rank.publish("alive");
                                      },
                                      {.deadline = 20s, .doomed = {0, 1}});
  EXPECT_TRUE(report.ok());
  EXPECT_TRUE(WIFSIGNALED(report.wait_status[0]));
  EXPECT_TRUE(WIFSIGNALED(report.wait_status[1]));
  EXPECT_EQ(report.published[2], "alive");
}

TEST(RankGroup, RanksMeetInEveryWay) {
  const auto meet_twice = [](RankContext& rank) {
    for (int i = 0; i < 2; ++i) {
      Communicator comm = rank.communicator();
      EXPECT_EQ(comm.rank(), rank.rank());
      EXPECT_EQ(comm.size(), rank.size());
      int32_t sum = 0;
      const int32_t mine = rank.rank() + 1;
      const auto work =
          comm.all_reduce({.in = &mine, .out = &sum, .count = 1, .dtype = DType::kI32}, StreamRef::caller());
      ASSERT_TRUE(work.ok()) << work.status().to_string();
      EXPECT_EQ(sum, 6);
    }
  };
  run_ranks(3, RankMode::kThreads, meet_twice);
  run_ranks(3, RankMode::kProcesses, meet_twice, {.meeting = Meeting::kTcp});
  run_ranks(3, RankMode::kProcesses, meet_twice, {.meeting = Meeting::kFile});
}

}  // namespace
}  // namespace shardcomm::testing
