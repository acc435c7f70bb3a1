// A world that is too small, or not what it seems: limits of the process, a tiny /dev/shm, containers that look like
// one node. Each is an error that says what is needed, what there is and what to change, on every rank and before
// anything is written; or it does not matter, and then nothing fails.
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

// Runs in a child, because what it does to the process cannot be undone. False where it says so or dies.
bool works_in_a_child(const std::function<bool()>& function) {
  const pid_t child = fork();
  if (child == 0) _exit(function() ? 0 : 1);
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool mount_alone() {
  return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

// In a mount namespace of this process, /dev/shm has no more than that.
bool shrink_dev_shm(size_t bytes) {
  const std::string size = "size=" + std::to_string(bytes);
  return mount_alone() && mount("none", "/dev/shm", "tmpfs", 0, size.c_str()) == 0;
}

// All that allocates or moves bytes, once.
void use(Communicator& comm) {
  Result<Window> window = comm.allocate_window(8 << 20, "8 MiB");
  ASSERT_TRUE(window.ok()) << window.status().to_string();
  std::memset(window->data(), comm.rank() + 1, 8 << 20);
  std::vector<std::byte> heap(8 << 20), out(heap.size() * static_cast<size_t>(comm.size()));
  for (const std::byte* in : {window->data(), heap.data()}) {
    const Status gathered = outcome(comm.all_gather({in, out.data(), 8 << 20, DType::kU8}, StreamRef::caller()));
    ASSERT_TRUE(gathered.ok()) << gathered.to_string();
  }
  std::optional<Communicator> half = comm.split(comm.rank(), 0).value();
  EXPECT_TRUE(outcome(half->barrier(StreamRef::caller())).ok());
}

// Shared memory here has no name and is not a file of /dev/shm, so its size does not matter.
TEST(Limits, ATinyDevShmDoesNotMatter) {
  if (!works_in_a_child([] { return shrink_dev_shm(64 << 10); })) GTEST_SKIP() << "may not mount in a namespace";
  for (const char* options : {"", "memory_access=staging,staging_bytes=4M"}) {
    run_ranks(2, RankMode::kProcesses, [&](RankContext& rank) {
      ASSERT_TRUE(shrink_dev_shm(64 << 10));
      Communicator comm = rank.communicator(options);
      use(comm);
      EXPECT_TRUE(files_in("/dev/shm").empty());
    });
  }
}

// Nothing is locked into memory, so that limit does not matter either.
TEST(Limits, NoLockedMemoryIsNeeded) {
  run_ranks(2, RankMode::kProcesses, [](RankContext& rank) {
    const rlimit none{0, 0};
    ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &none), 0);
    Communicator comm = rank.communicator();
    use(comm);
  });
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which take address space for themselves
TEST(Limits, OfAddressSpaceOnOneRankAreToldToAll) {
  const RankReport report = run_ranks(3, RankMode::kProcesses, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_AS, &limit), 0);
    const rlimit before = limit;
    if (rank.rank() == 1) {
      size_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      limit.rlim_cur = pages * 4096 + (64 << 20);
      ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    }
    const Status status = comm.allocate_window(256 << 20, "more than fits").status();
    EXPECT_TRUE(failed_with(status, Code::kOutOfMemory, {"more than fits", "needs", "available"}));
    const std::string text = status.to_string();
    rank.publish(text.substr(text.find("window")));
    // Nothing has been taken, and what fits still works.
    EXPECT_TRUE(comm.allocate_window(1 << 20, "less").ok());
    ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
    use(comm);
  });
  EXPECT_EQ(report.published[0], report.published[1]);
  EXPECT_EQ(report.published[0], report.published[2]);
}
#endif

// One rank runs out of file descriptors: all are told which, and how many it may have.
TEST(Limits, OfOpenFilesOnOneRankAreToldToAll) {
  if (kPatience > 1) GTEST_SKIP() << "sanitizers need descriptors of their own";
  run_ranks(3, RankMode::kProcesses, [](RankContext& rank) {
    Result<std::unique_ptr<Store>> store = open_store(rank.next_store_uri());
    ASSERT_TRUE(store.ok());
    Result<Options> options = Options::parse("timeout_ms=20000,init_timeout_ms=20000");
    ASSERT_TRUE((*store)->join(rank.rank(), rank.size(), *options).ok());
    const auto create = [&] {
      return Communicator::create(**store, {.rank = rank.rank(), .size = rank.size(), .device = {}}, *options);
    };
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    // How many more it takes, each of them once too few: 1 for shared memory, 1 a peer.
    for (rlim_t more = 0; more < 4; ++more) {
      SCOPED_TRACE(more);
      if (rank.rank() == 1) {
        rlimit few = before;
        few.rlim_cur = 1;  // the lowest number that is free is the first that may not be taken
        for (int fd = dup(0); fd >= 0; fd = -1) {
          few.rlim_cur = static_cast<rlim_t>(fd) + more;
          close(fd);
        }
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
      }
      const Status status = create().status();
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
      if (status.ok()) {
        EXPECT_GT(more, 1u);
        continue;
      }
      EXPECT_TRUE(failed_with(status, Code::kUnavailable, {"rank 1", "EMFILE", "ulimit -n"}));
    }
    Result<Communicator> comm = create();
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    use(*comm);
  });
}

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
TEST(Containers, ThatLookLikeOneNodeAreToldApart) {
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

// A child of a rank has its memory and not its place: what it calls is refused at once, and how it ends, or that it
// destroys its copies, concerns nobody.
TEST(Fork, AChildIsNoRankAndHarmsNone) {
  run_ranks(2, RankMode::kProcesses, [](RankContext& rank) {
    std::optional<Communicator> comm(rank.communicator());
    std::optional<Window> window(comm->allocate_window(1 << 20, "w").value());
    ASSERT_TRUE(outcome(comm->barrier(StreamRef::caller())).ok());
    EXPECT_TRUE(works_in_a_child([&] {
      const Stopwatch watch;
      float value = 0;
      const Status statuses[] = {
          outcome(comm->barrier(StreamRef::caller())),
          outcome(comm->broadcast({&value, 1, DType::kF32, 0}, StreamRef::caller())),
          comm->allocate_window(1, "child").status(),
          comm->split(0, 0).status(),
      };
      for (const Status& status : statuses) {
        if (!failed_with(status, Code::kFailedPrecondition, {"forked"})) return false;
      }
      comm->abort("a child has no say");
      window.reset();
      comm.reset();
      return watch.elapsed() < stretched(500ms);
    }));
    for (int i = 0; i < 3; ++i) {
      const Status status = outcome(comm->barrier(StreamRef::caller()));
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    EXPECT_TRUE(comm->health().ok()) << comm->health().to_string();
    window.reset();
  });
}

size_t resident_bytes() {
  size_t pages = 0;
  std::ifstream file("/proc/self/statm");
  file >> pages >> pages;
  return pages * 4096;
}

TEST(Cost, OneRankNeedsHardlyAnything) {
  run_ranks(1, RankMode::kProcesses, [](RankContext&) {
    constexpr size_t kMany = 64;
    const auto make = [](size_t i) {
      std::unique_ptr<Store> store = open_store("local://alone-" + std::to_string(i)).value();
      Result<Communicator> made = Communicator::create(*store, {.rank = 0, .size = 1, .device = {}}, Options());
      EXPECT_TRUE(made.ok()) << made.status().to_string();
      float value = 3, sum = 0;
      EXPECT_TRUE(outcome(made->all_reduce({&value, &sum, 1, DType::kF32}, StreamRef::caller())).ok());
      return std::move(made).value();
    };
    const Communicator first = make(0);
    const Resources before = Resources::now();
    const size_t resident_before = resident_bytes();
    std::vector<Communicator> many;
    for (size_t i = 0; i < kMany; ++i) many.push_back(make(i + 1));
    const Resources after = Resources::now();
    EXPECT_EQ(after.threads, before.threads);
    EXPECT_LE(after.descriptors, before.descriptors + kMany);  // of the flight recorder, for others to find it
    if (kPatience == 1) {                                      // sanitizers keep memory of their own
      EXPECT_LT((resident_bytes() - resident_before) / kMany, size_t{64} << 10) << "bytes of memory for each";
    }
  });
}

// Memory as well, where communicator_test counts descriptors, threads and mappings.
TEST(Cost, AThousandLivesLeaveMemoryAsItWas) {
  const std::set<std::string> before = files_in("/dev/shm");
  run_ranks(2, RankMode::kProcesses, [](RankContext& rank) {
    Result<std::unique_ptr<Store>> store = open_store(rank.next_store_uri());
    ASSERT_TRUE(store.ok());
    Result<Options> options = Options::parse("timeout_ms=20000");
    Resources settled{};
    size_t resident = 0;
    constexpr int kLives = 1'000;
    for (int i = 0; i < kLives; ++i) {
      Result<Communicator> comm =
          Communicator::create(**store, {.rank = rank.rank(), .size = rank.size(), .device = {}}, *options);
      ASSERT_TRUE(comm.ok()) << "after " << i << ": " << comm.status().to_string();
      std::vector<float> in(40'000, 1.0f), out(40'000);
      ASSERT_TRUE(outcome(comm->all_reduce({in.data(), out.data(), in.size(), DType::kF32}, StreamRef::caller())).ok());
      if (i == kLives / 5) {
        settled = Resources::now();
        resident = resident_bytes();
      }
      if (i + 1 == kLives) {
        const Resources now = Resources::now();
        EXPECT_EQ(now.descriptors, settled.descriptors);
        EXPECT_EQ(now.threads, settled.threads);
        EXPECT_EQ(now.shared_mappings, settled.shared_mappings);
        if (kPatience == 1) {
          EXPECT_LT(resident_bytes(), resident + (size_t{2} << 20)) << "for 800 lives";
        }
      }
      ASSERT_TRUE(outcome(comm->barrier(StreamRef::caller())).ok());
    }
  });
  EXPECT_EQ(files_in("/dev/shm"), before);
}

}  // namespace
}  // namespace shardcomm::testing
