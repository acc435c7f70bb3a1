// Limits of the process and a tiny /dev/shm. Each is an error that says what is needed, what there is and what to
// change, on every rank and before anything is written; or it does not matter, and then nothing fails.
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>

#include "tests/support/failure.h"
#include "tests/support/isolation.h"

namespace shardcomm::testing {
namespace {

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
TEST(Limits, TinyDevShmDoesNotMatter) {
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
TEST(Limits, AddressSpaceLimitOnOneRankFailsAllRanks) {
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
TEST(Limits, OpenFileLimitOnOneRankFailsAllRanks) {
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

}  // namespace
}  // namespace shardcomm::testing
