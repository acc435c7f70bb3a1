// Memory pools of ranks that are processes: what peers map, when, and what happens where they cannot.
#include <sys/mman.h>
#include <sys/resource.h>

#include "tests/communicator/pools.h"

namespace shardcomm::testing {
namespace {

// Of all pages of mapped segments whose file has that name.
size_t resident_bytes(const std::string& file) {
  std::ifstream maps("/proc/self/maps");
  size_t resident = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(file) == std::string::npos) continue;
    const size_t begin = std::stoull(line, nullptr, 16),
                 end = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
    std::vector<unsigned char> pages((end - begin) / 4096);
    if (mincore(reinterpret_cast<void*>(begin), end - begin, pages.data()) != 0) return SIZE_MAX;
    for (const unsigned char page : pages) resident += (page & 1) * size_t{4096};
  }
  return resident;
}

// Though the peer has mapped them, and keeps them mapped until it looks again.
TEST(PoolsOfProcesses, TrimFreesPagesThatPeersHaveMapped) {
  run_ranks(2, RankMode::kProcesses, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    MemoryPool pool = MemoryPool::create(comm, {.label = "of " + std::to_string(comm.rank())}).value();
    std::byte* const block = pool.take(8 * kMiB).value();
    expect_gathered(comm, block, 8 * kMiB, 0);
    const std::string peers = "of " + std::to_string(1 - comm.rank());
    EXPECT_GE(resident_bytes(peers), 8 * kMiB);
    ASSERT_TRUE(pool.give(block).ok());
    ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    EXPECT_EQ(pool.trim(), 8 * kMiB);
    ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    EXPECT_LE(resident_bytes(peers), 4096u);  // the trailer
  });
}

// A peer that was not there when a segment was made maps it when it comes.
TEST(PoolsOfProcesses, PeersMapLate) {
  run_ranks(3, RankMode::kProcesses, [](RankContext& rank) {
    Communicator comm = rank.communicator("memory_access=staging");
    MemoryPool pool = MemoryPool::create(comm).value();
    std::vector<std::byte*> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(pool.take(2 * kMiB).value());
    const size_t alone = Resources::now().shared_mappings;
    for (int round = 0; round < 100; ++round) ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    EXPECT_EQ(Resources::now().shared_mappings, alone);
    std::byte* const last = blocks.back();
    std::vector<std::byte> into(kMiB);
    std::byte* const data = comm.rank() == 0 ? last : into.data();  // only rank 0 is read
    std::memset(data, comm.rank() == 0 ? 9 : 0, kMiB);
    ASSERT_TRUE(outcome(comm.broadcast({data, kMiB, DType::kU8, 0}, StreamRef::caller())).ok());
    EXPECT_EQ(data[kMiB - 1], std::byte{9});
    EXPECT_EQ(Resources::now().shared_mappings, alone + (comm.rank() == 0 ? 0 : 1));
  });
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which take address space for themselves
// Rank 1 has no addresses left for what rank 0 shows.
void with_few_addresses(const char* options, const std::function<void(Communicator&, const Status&)>& check) {
  run_ranks(2, RankMode::kProcesses, [&](RankContext& rank) {
    Communicator comm = rank.communicator(options);
    MemoryPool pool = MemoryPool::create(comm).value();
    std::byte* const block = pool.take((comm.rank() == 0 ? 256 : 1) * kMiB).value();
    std::vector<std::byte> full(2 * kMiB);
    if (comm.rank() == 1) {
      size_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const rlimit limit{pages * 4096 + (64 << 20), RLIM_INFINITY};
      ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
      EXPECT_TRUE(failed_with(pool.take(256 * kMiB).status(), Code::kOutOfMemory, {"needs 256", "available"}));
      EXPECT_TRUE(pool.take(2 * kMiB).ok());
    }
    std::memset(block, 5, kMiB);
    check(comm, outcome(comm.all_gather({block, full.data(), kMiB, DType::kU8}, StreamRef::caller())));
    if (comm.health().ok()) {
      EXPECT_EQ(full[0], std::byte{5});
      EXPECT_EQ(full[2 * kMiB - 1], std::byte{5});
    }
  });
}

TEST(PoolsOfProcesses, UnmappableSegmentFailsAllRanksWithTheCause) {
  with_few_addresses("memory_access=staging", [](Communicator&, const Status& status) {
    EXPECT_TRUE(failed_with(status, Code::kOutOfMemory, {"rank 1 maps pool memory of rank 0", "mmap", "ENOMEM"}));
  });
}

TEST(PoolsOfProcesses, UnmappableSegmentIsAttachedWhereThatIsAllowed) {
  with_few_addresses("memory_access=attach", [](Communicator& comm, const Status& status) {
    if (comm.explain({Collective::kAllGather, kMiB, DType::kU8, SourceKind::kAttached}).source ==
        SourceKind::kAttached) {
      EXPECT_TRUE(status.ok()) << status.to_string();
    } else {
      EXPECT_FALSE(status.ok());
    }
  });
}
#endif

TEST(PoolsOfProcesses, OpenFileLimitIsAnErrorThatSaysSo) {
  if (kPatience > 1) GTEST_SKIP() << "sanitizers need descriptors of their own";
  run_ranks(2, RankMode::kProcesses, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    MemoryPool pool = MemoryPool::create(comm, {.initial_bytes = kMiB, .label = "files"}).value();
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    rlimit few = before;
    few.rlim_cur = 3;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    const Status status = pool.take(8 * kMiB).status();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_TRUE(failed_with(status, Code::kUnavailable, {"pool 'files'", "EMFILE", "ulimit -n"}));
    expect_gathered(comm, pool.take(100'000).value(), 100'000, 0);
    expect_gathered(comm, pool.take(8 * kMiB).value(), 100'000, 1);
  });
}

}  // namespace
}  // namespace shardcomm::testing
