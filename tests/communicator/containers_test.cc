// Ranks in containers that look like one node: the error says so, on every rank.
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "tests/support/failure.h"
#include "tests/support/isolation.h"

namespace shardcomm::testing {
namespace {

// A process in a pid namespace of its own, with its own /proc: what a container is to shared memory. `function` runs
// there, and its failures are the rank's.
void in_container(const std::function<void()>& function) {
  ASSERT_EQ(unshare(CLONE_NEWPID), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (mount_alone() && mount("proc", "/proc", "proc", 0, nullptr) == 0) function();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// They share an address and a host name, and each sees a process of the other's number: not one node all the same,
// since neither finds the other's token. There is no other transport in this build, so that is said, on both.
TEST(Containers, AreNotOneNode) {
  if (kPatience > 1) GTEST_SKIP() << "LeakSanitizer does not find its own process there";
  const auto container_possible = [] {
    if (unshare(CLONE_NEWPID) != 0) return false;
    return works_in_a_child([] { return mount_alone() && mount("proc", "/proc", "proc", 0, nullptr) == 0; });
  };
  if (!works_in_a_child(container_possible)) GTEST_SKIP() << "may not make pid namespaces";
  const std::vector<std::vector<Rank>> contained = {{0}, {1}, {0, 1}};
  for (const std::vector<Rank>& inside : contained) {
    SCOPED_TRACE(::testing::PrintToString(inside));
    run_ranks(2, RankMode::kProcesses, [&](RankContext& rank) {
      const auto connect = [&] {
        const Stopwatch watch;
        const Status status = rank.try_communicator().status();
        EXPECT_TRUE(failed_with(status, Code::kUnavailable, {"rank 0", "container"}));
        EXPECT_LT(watch.elapsed(), stretched(3s));
      };
      if (std::count(inside.begin(), inside.end(), rank.rank()) == 0) return connect();
      in_container(connect);
    });
  }
}

}  // namespace
}  // namespace shardcomm::testing
