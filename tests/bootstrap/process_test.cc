// Ranks as processes: forked here, before this program has threads, so that they can be killed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "bootstrap/bootstrap.h"
#include "tests/bootstrap/meeting.h"

namespace shardcomm {
namespace {

using namespace shardcomm::testing;
using bootstrap::exchange;

// Processes that run a function each and are gone, one way or another, when this is.
class Processes {
 public:
  ~Processes() {
    for (const auto& [rank, pid] : pids_) kill(pid, SIGKILL);
    for (const auto& [rank, pid] : pids_) waitpid(pid, nullptr, 0);
  }
  void start(Rank rank, const std::function<void()>& function) {
    const pid_t pid = fork();
    if (pid == 0) {
      function();
      _exit(::testing::Test::HasFailure() ? 1 : 0);  // what failed has been printed
    }
    ASSERT_GT(pid, 0);
    pids_.emplace_back(rank, pid);
  }
  void kill_hard(Rank rank) {
    for (auto at = pids_.begin(); at != pids_.end(); ++at) {
      if (at->first != rank) continue;
      kill(at->second, SIGKILL);
      waitpid(at->second, nullptr, 0);
      pids_.erase(at);
      return;
    }
  }
  void expect_success() {
    const Deadline limit = in(60s);
    while (!pids_.empty()) {
      const auto [rank, pid] = pids_.back();
      int status = 0;
      while (waitpid(pid, &status, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() > limit) {
          ADD_FAILURE() << "rank " << rank << " hangs";
          return;
        }
        std::this_thread::sleep_for(2ms);
      }
      pids_.pop_back();
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << " failed: " << status;
    }
  }

 private:
  std::vector<std::pair<Rank, pid_t>> pids_;
};

// Bytes written by children wake the test: "rank 2 is where it should be killed".
class Signal {
 public:
  Signal() { EXPECT_EQ(pipe(ends_), 0); }
  ~Signal() {
    close(ends_[0]);
    close(ends_[1]);
  }
  void raise() const { EXPECT_EQ(write(ends_[1], "x", 1), 1); }
  void wait() const {
    char byte;
    EXPECT_EQ(read(ends_[0], &byte, 1), 1);
  }

 private:
  int ends_[2];
};

class ProcessTest : public ::testing::TestWithParam<const char*> {
 protected:
  ProcessTest()
      : uri_(std::string(GetParam()) == "tcp" ? tcp_uri(free_port()) : "file://" + directory_.path() + "/meeting") {}

  std::unique_ptr<Store> join(Rank rank, int size) { return join_or_fail(uri_, rank, size, quick_options()); }

  TemporaryDirectory directory_;
  const std::string uri_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, ProcessTest, ::testing::Values("tcp", "file"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(ProcessTest, ProcessesMeet) {
  Processes ranks;
  for (Rank rank = 0; rank < 5; ++rank) {
    ranks.start(rank, [&] {
      const auto store = join(rank, 5);
      for (int round = 0; round < 10; ++round) {
        const auto all = exchange(*store, std::to_string(round), rank, 5, std::to_string(getpid()), in(20s));
        ASSERT_TRUE(all.ok()) << all.status().to_string();
        EXPECT_EQ(all.value()[static_cast<size_t>(rank)], std::to_string(getpid()));
        EXPECT_NE(all.value()[0], all.value()[4]);
      }
    });
  }
  ranks.expect_success();
}

TEST_P(ProcessTest, AKilledRankIsNamedToAllOthersWithinASecond) {
  Processes ranks;
  const Signal joined;
  for (Rank rank = 0; rank < 4; ++rank) {
    ranks.start(rank, [&] {
      const auto store = join(rank, 4);
      ASSERT_TRUE(exchange(*store, "start", rank, 4, "", in(20s)).ok());
      joined.raise();
      const Status status = store->get("never", in(20s)).status();
      EXPECT_EQ(status.code(), Code::kPeerLost) << "rank " << rank;
      EXPECT_TEXT(status, "rank 2 (pid ");
      EXPECT_TEXT(status, "is gone");
      EXPECT_TEXT(exchange(*store, "after", rank, 4, "", in(2s)).status(), "rank 2 (pid ");
      joined.raise();
      if (rank == 0) std::this_thread::sleep_for(1s);  // its store is what the others hear it from
    });
  }
  for (int i = 0; i < 4; ++i) joined.wait();
  std::this_thread::sleep_for(100ms);
  ranks.kill_hard(2);
  const Deadline killed = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) joined.wait();
  EXPECT_LT(since(killed), 5s);
  ranks.expect_success();
}

TEST_P(ProcessTest, AKilledRank0IsNoticedByAll) {
  Processes ranks;
  const Signal joined;
  for (Rank rank = 0; rank < 3; ++rank) {
    ranks.start(rank, [&] {
      const auto store = join(rank, 3);
      ASSERT_TRUE(exchange(*store, "start", rank, 3, "", in(20s)).ok());
      joined.raise();
      const Status status = store->get("never", in(20s)).status();
      EXPECT_EQ(status.code(), Code::kPeerLost);
      EXPECT_TEXT(status, "rank 0");
      EXPECT_TEXT(status, "is gone");
    });
  }
  for (int i = 0; i < 3; ++i) joined.wait();
  std::this_thread::sleep_for(100ms);
  const Deadline killed = std::chrono::steady_clock::now();
  ranks.kill_hard(0);
  ranks.expect_success();
  EXPECT_LT(since(killed), 5s);
}

TEST_P(ProcessTest, APlaceWhoseJobWasKilledServesTheNextOne) {
  for (int job = 0; job < 3; ++job) {
    Processes ranks;
    const Signal joined;
    for (Rank rank : {1, 2, 0}) {  // rank 0 last: the others find what the job before left
      ranks.start(rank, [&] {
        const auto store = join(rank, 3);
        const auto all = exchange(*store, "x", rank, 3, std::to_string(job), in(20s));
        ASSERT_TRUE(all.ok()) << all.status().to_string();
        EXPECT_EQ(all.value()[0], std::to_string(job));  // not of the job before
        EXPECT_TRUE(store->set("left by " + std::to_string(rank), "x").ok());
        joined.raise();
        if (job < 2) pause();
        EXPECT_TRUE(exchange(*store, "end", rank, 3, "", in(20s)).ok());
      });
      if (rank == 2) std::this_thread::sleep_for(150ms);
    }
    for (int i = 0; i < 3; ++i) joined.wait();
    if (job == 2) ranks.expect_success();
  }  // kills them
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/meeting/session"));
  size_t left = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.path()))
    left += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(left, 0u);
}

TEST_P(ProcessTest, AForkedChildThatEndsItsCopyOfTheStoreHarmsNobody) {
  Processes ranks;
  for (Rank rank = 0; rank < 2; ++rank) {
    ranks.start(rank, [&] {
      auto store = join(rank, 2);
      ASSERT_TRUE(exchange(*store, "before", rank, 2, "", in(20s)).ok());
      if (rank == 1) {  // it has no threads
        const pid_t child = fork();
        if (child == 0) {
          store.reset();
          _exit(0);
        }
        waitpid(child, nullptr, 0);
      }
      const auto all = exchange(*store, "after", rank, 2, "", in(20s));
      EXPECT_TRUE(all.ok()) << all.status().to_string();
    });
  }
  ranks.expect_success();
}

TEST(FileStore, ADirectoryInUseIsNamed) {
  const TemporaryDirectory directory;
  const std::string uri = "file://" + directory.path();
  const auto first = join_or_fail(uri, 0, 2, quick_options());
  const Status second = open_or_die(uri)->join(0, 2, quick_options());
  EXPECT_EQ(second.code(), Code::kUnavailable);
  EXPECT_TEXT(second, "in use by a rank 0 (pid " + std::to_string(getpid()));
}

TEST(FileStore, AnotherSecretIsNamed) {
  const TemporaryDirectory directory;
  const std::string uri = "file://" + directory.path();
  const auto first = join_or_fail(uri, 0, 2, quick_options());
  const Status other = open_or_die(uri)->join(1, 2, quick_options("a wrong secret"));
  EXPECT_EQ(other.code(), Code::kFailedPrecondition);
  EXPECT_TEXT(other, "another job secret");
  EXPECT_TRUE(open_or_die(uri)->join(1, 2, quick_options()).ok());
}

TEST(FileStore, OnlyThisUserMayEnterADirectoryItMade) {
  const TemporaryDirectory directory;
  const auto store = join_or_fail("file://" + directory.path() + "/deep/er", 0, 2, quick_options());
  const auto mode = std::filesystem::status(directory.path() + "/deep/er").permissions();
  EXPECT_EQ(mode & std::filesystem::perms::all, std::filesystem::perms::owner_all);
}

TEST(FileStore, FilesOfOthersStay) {
  const TemporaryDirectory directory;
  const std::string strange = directory.path() + "/session-0123";
  std::filesystem::create_directory(strange);
  fclose(fopen((strange + "/notes.txt").c_str(), "w"));
  fclose(fopen((directory.path() + "/data").c_str(), "w"));
  join_or_fail("file://" + directory.path(), 0, 2, quick_options()).reset();
  EXPECT_TRUE(std::filesystem::exists(strange + "/notes.txt"));
  EXPECT_TRUE(std::filesystem::exists(directory.path() + "/data"));
  EXPECT_FALSE(std::filesystem::exists(directory.path() + "/session"));
}

TEST(FileStore, GarbageInTheSessionFileIsNamed) {
  const TemporaryDirectory directory;
  FILE* file = fopen((directory.path() + "/session").c_str(), "w");
  fputs("not a session", file);
  fclose(file);
  Options options = quick_options();
  options.init_timeout = 100ms;
  const Status joined = open_or_die("file://" + directory.path())->join(1, 2, options);
  EXPECT_EQ(joined.code(), Code::kTimedOut);  // nobody holds it: it may still be replaced
  EXPECT_TEXT(joined, "rank 0 did not open the meeting in time");
  EXPECT_TRUE(open_or_die("file://" + directory.path())->join(0, 2, options).ok());
}

TEST(FileStore, AnUnwritableDirectoryIsNamed) {
  const Status joined = open_or_die("file:///proc/nowhere")->join(0, 2, quick_options());
  EXPECT_FALSE(joined.ok());
  EXPECT_TEXT(joined, "mkdir /proc/nowhere");
}

}  // namespace
}  // namespace shardcomm
