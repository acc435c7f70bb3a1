// A team: every part once, one piece after the other, whoever takes them.
#include "device/host_team.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/support/live_threads.h"

namespace shardcomm {
namespace {

TEST(HostTeam, RunsEveryPartOnce) {
  for (const int size : {1, 2, 3, 5}) {
    HostTeam team(size);
    for (int parts = 0; parts < 40; ++parts) {
      std::vector<int> runs(static_cast<size_t>(parts));  // no atomics: parts are apart, and run() orders all of them
      team.run(parts, [&](int part) { ++runs[static_cast<size_t>(part)]; });
      EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(parts), 1)) << size;
    }
  }
}

// Helpers that wake late must not take a part of the next piece for one of theirs.
TEST(HostTeam, ShortPiecesFollowEachOther) {
  HostTeam team(4);
  uint64_t sum = 0, expected = 0;
  for (uint64_t piece = 0; piece < 20'000; ++piece) {
    const int parts = 1 + static_cast<int>(piece % 7);
    std::vector<uint64_t> values(static_cast<size_t>(parts));
    team.run(parts, [&](int part) { values[static_cast<size_t>(part)] = piece * 8 + static_cast<uint64_t>(part); });
    sum = std::accumulate(values.begin(), values.end(), sum);
    for (int part = 0; part < parts; ++part) expected += piece * 8 + static_cast<uint64_t>(part);
  }
  EXPECT_EQ(sum, expected);
}

TEST(HostTeam, PartsRunAtTheSameTime) {
  HostTeam team(3);
  std::atomic<int> there{0};
  team.run(3, [&](int) {  // each waits for the other two
    there.fetch_add(1);
    while (there.load() < 3) std::this_thread::yield();
  });
  EXPECT_EQ(there.load(), 3);
}

TEST(HostTeam, StartsNothingBeforeItIsNeededAndLeavesNothing) {
  const size_t before = testing::live_threads();
  {
    HostTeam team(3);
    team.run(1, [](int) {});
    EXPECT_EQ(testing::live_threads(), before);
    team.run(2, [](int) {});
    EXPECT_EQ(testing::live_threads(), before + 2);
  }
  EXPECT_EQ(testing::live_threads(), before);
}

TEST(HostTeam, SmallPiecesAreOnePart) {
  const HostTeam team(4);
  EXPECT_EQ(team.parts_for(0), 1);
  EXPECT_EQ(team.parts_for((size_t{2} << 20) - 1), 1);
  EXPECT_EQ(team.parts_for(size_t{2} << 20), 2);
  EXPECT_EQ(team.parts_for(size_t{1} << 40), 4);
}

// A child has none of its parent's helpers, and ends well without them.
TEST(HostTeam, IsLeftBehindByAFork) {
  auto team = std::make_unique<HostTeam>(3);
  team->run(3, [](int) {});
  const pid_t child = fork();
  if (child == 0) {
    team.reset();
    _exit(7);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

}  // namespace
}  // namespace shardcomm
