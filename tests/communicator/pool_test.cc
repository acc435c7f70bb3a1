// Memory pools: what they promise about their blocks, by themselves and under operations, and about asking for too
// much.
#include <cstring>
#include <deque>
#include <random>
#include <utility>

#include "tests/communicator/pools.h"
#include "tests/support/isolation.h"

namespace shardcomm::testing {
namespace {

class Pools : public ::testing::TestWithParam<RankMode> {};

uint64_t address(const std::byte* block) { return reinterpret_cast<uint64_t>(block); }

TEST_P(Pools, TakeAndGiveInAnyOrder) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    MemoryPool pool = MemoryPool::create(comm, {.initial_bytes = kMiB, .label = "blocks"}).value();
    EXPECT_EQ(pool.label(), "blocks");
    EXPECT_EQ(pool.report().reserved_bytes, kMiB);
    EXPECT_EQ(pool.report().segments, 1u);
    std::vector<std::byte*> blocks;
    for (const size_t bytes : {0, 1, 63, 64, 65, 0, 4096, 100'000}) {
      Result<std::byte*> block = pool.take(bytes);
      ASSERT_TRUE(block.ok()) << block.status().to_string();
      EXPECT_EQ(address(*block) % 64, 0u);
      EXPECT_TRUE(std::all_of(*block, *block + bytes, [](std::byte b) { return b == std::byte{0}; }));
      std::memset(*block, 0xff, bytes);
      blocks.push_back(*block);
    }
    const PoolReport full = pool.report();
    EXPECT_EQ(full.blocks, 8u);
    EXPECT_EQ(full.used_bytes, 6 * 64u + 64u + 4096u + 100'032u);
    for (const size_t i : {3, 0, 7, 1, 6, 2, 5, 4}) EXPECT_TRUE(pool.give(blocks[i]).ok());
    EXPECT_EQ(pool.report().blocks, 0u);
    EXPECT_EQ(pool.report().used_bytes, 0u);
    EXPECT_EQ(pool.report().peak_used_bytes, full.used_bytes);
    EXPECT_EQ(pool.take(kMiB).value(), blocks[0]);  // all of it is one block again
    EXPECT_EQ(pool.report().segments, 1u);
    for (size_t align = 1; align <= 4 * kMiB; align *= 2) EXPECT_EQ(address(pool.take(100, align).value()) % align, 0u);
  });
}

TEST_P(Pools, RefuseWhatTheyDidNotGiveOut) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    MemoryPool pool = MemoryPool::create(comm, {.label = "mine"}).value();
    MemoryPool other = MemoryPool::create(comm, {.label = "other"}).value();
    std::byte* const block = pool.take(1000).value();
    std::byte* const neighbour = pool.take(1000).value();
    std::memset(neighbour, 42, 1000);
    const int local = 0;
    const void* const wrong[] = {nullptr, block + 1, block + 64, &local, other.take(10).value()};
    for (const void* pointer : wrong)
      EXPECT_TRUE(failed_with(pool.give(pointer), Code::kInvalidArgument, {"pool 'mine'", "not a block"}));
    EXPECT_TRUE(pool.give(block).ok());
    EXPECT_TRUE(failed_with(pool.give(block), Code::kInvalidArgument, {"given back already"}));
    EXPECT_EQ(pool.report().blocks, 1u);
    EXPECT_EQ(neighbour[999], std::byte{42});
    for (const size_t align : {0, 3, 65, 4095})
      EXPECT_TRUE(failed_with(pool.take(10, align).status(), Code::kInvalidArgument, {"power of two"}));
    EXPECT_TRUE(pool.give(neighbour).ok());
  });
}

TEST_P(Pools, RefuseMoreThanThereIs) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    MemoryPool pool = MemoryPool::create(comm, {.initial_bytes = kMiB, .label = "greedy"}).value();
    std::byte* const block = pool.take(kMiB).value();
    for (const size_t bytes :
         {SIZE_MAX, SIZE_MAX - 63, SIZE_MAX - 4095, SIZE_MAX / 2, size_t{1} << 48, size_t{1} << 46})
      EXPECT_TRUE(failed_with(pool.take(bytes).status(), Code::kOutOfMemory, {"pool 'greedy' needs", "available"}))
          << bytes;
    EXPECT_TRUE(failed_with(pool.take(1, size_t{1} << 63).status(), Code::kOutOfMemory, {"needs"}));
    EXPECT_TRUE(failed_with(pool.take(SIZE_MAX, size_t{1} << 63).status(), Code::kOutOfMemory, {"needs"}));
    EXPECT_EQ(pool.report().reserved_bytes, kMiB);
    for (const size_t bytes : {SIZE_MAX, size_t{1} << 47}) {
      const Status status = MemoryPool::create(comm, {.initial_bytes = bytes, .label = "vast"}).status();
      EXPECT_TRUE(failed_with(status, Code::kOutOfMemory, {"pool 'vast' needs"}));
    }
    expect_gathered(comm, block, kMiB, 0);
  });
}

TEST_P(Pools, KeepToTheirLimit) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    const Status excess = MemoryPool::create(comm, {.initial_bytes = 2 * kMiB, .max_bytes = kMiB}).status();
    EXPECT_TRUE(failed_with(excess, Code::kOutOfMemory, {"needs 2", "1"}));
    MemoryPool pool = MemoryPool::create(comm, {.max_bytes = 10 * kMiB, .label = "limited"}).value();
    std::vector<std::byte*> blocks;
    for (int i = 0; i < 10; ++i) blocks.push_back(pool.take(kMiB).value());
    EXPECT_TRUE(failed_with(pool.take(1).status(), Code::kOutOfMemory, {"pool 'limited' needs", "of its 10 MiB"}));
    EXPECT_EQ(pool.report().reserved_bytes, 10 * kMiB);
    for (std::byte* block : blocks) EXPECT_TRUE(pool.give(block).ok());
    // Its segments are smaller; they make room.
    Result<std::byte*> all = pool.take(10 * kMiB);
    ASSERT_TRUE(all.ok()) << all.status().to_string();
    EXPECT_EQ(pool.report().segments, 1u);
    expect_gathered(comm, *all, 10 * kMiB, 1);
  });
}

// Each segment is as large as all before it, so there are few; and the peers map each once.
TEST_P(Pools, GrowWhileOperationsUseThem) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    run_ranks(ranks, GetParam(), [](RankContext& rank) {
      Communicator comm = rank.communicator();
      MemoryPool pool = MemoryPool::create(comm).value();
      for (Rank r = 0; r < comm.rank(); ++r) (void)pool.take(1000).value();  // so offsets differ
      std::vector<std::byte*> blocks;
      for (int round = 0; round < 12; ++round) {
        blocks.push_back(pool.take(kMiB - 4096 * static_cast<size_t>(comm.rank())).value());
        for (std::byte* block : blocks) expect_gathered(comm, block, 200'000, round);
      }
      EXPECT_LE(pool.report().segments, 5u);
      const auto before = Resources::now();
      for (std::byte* block : blocks) expect_gathered(comm, block, 100'000, 1);
      if (rank.mode() == RankMode::kThreads) return;
      EXPECT_EQ(Resources::now().shared_mappings, before.shared_mappings);
    });
  }
}

// Calls of many tensors, from other places in every call. `alike`: at the same ones on all ranks, which is chance and
// means nothing.
void move_many_tensors(RankMode mode, bool alike) {
  run_ranks(4, mode, [alike](RankContext& rank) {
    Communicator comm = rank.communicator();
    MemoryPool pool = MemoryPool::create(comm, {.label = "many"}).value();
    constexpr size_t kItems = 40, kRanks = 4;
    std::mt19937 random(alike ? 1 : static_cast<unsigned>(comm.rank()) * 77 + 1);
    std::deque<std::byte*> kept;
    for (int round = 0; round < 30; ++round) {
      std::vector<std::byte*> blocks;
      const auto take = [&](size_t count) {
        kept.push_back(pool.take(random() % 50'000).value());  // something else lies between them
        blocks.push_back(pool.take(count * sizeof(int32_t), size_t{64} << random() % 5).value());
        return reinterpret_cast<int32_t*>(blocks.back());
      };
      std::vector<GatherItem> gathers;
      std::vector<ReduceItem> reductions;
      for (size_t i = 0; i < kItems; ++i) {
        const size_t count = i * 173 + static_cast<size_t>(round);
        int32_t* const shard = take(count);
        int32_t* const full = take(count * kRanks);
        std::fill_n(shard, count, static_cast<int32_t>(i) * 10 + comm.rank());
        std::fill_n(full, count * kRanks, -1);
        gathers.push_back({shard, full, count, DType::kI32});
      }
      for (int again = 0; again < 2; ++again)
        ASSERT_TRUE(outcome(comm.all_gather_many(gathers, StreamRef::caller())).ok());
      for (size_t i = 0; i < kItems; ++i) {
        for (size_t k = 0; k < gathers[i].count * kRanks; ++k) {
          const auto expected = static_cast<int32_t>(i * 10 + k / gathers[i].count);
          ASSERT_EQ(static_cast<const int32_t*>(gathers[i].full)[k], expected) << "round " << round << " item " << i;
        }
        reductions.push_back({gathers[i].full, take(gathers[i].count), gathers[i].count, DType::kI32});
      }
      for (int again = 0; again < 2; ++again)
        ASSERT_TRUE(outcome(comm.reduce_scatter_many(reductions, StreamRef::caller())).ok());
      for (size_t i = 0; i < kItems; ++i) {
        const auto expected = static_cast<int32_t>(kRanks * (i * 10 + static_cast<size_t>(comm.rank())));
        const auto* const shard = static_cast<const int32_t*>(reductions[i].shard);
        ASSERT_TRUE(std::all_of(shard, shard + reductions[i].count, [&](int32_t v) { return v == expected; }));
      }
      std::shuffle(blocks.begin(), blocks.end(), random);
      for (std::byte* block : blocks) ASSERT_TRUE(pool.give(block).ok());
      for (; kept.size() > 100; kept.pop_front()) ASSERT_TRUE(pool.give(kept.front()).ok());
      if (round % 10 == 9) pool.trim();
    }
  });
}

TEST_P(Pools, BlocksOfOneOperationMayLieAnywhere) { move_many_tensors(GetParam(), false); }
TEST_P(Pools, BlocksOfOneOperationMayLieAlike) { move_many_tensors(GetParam(), true); }

// Some ranks have no pool, and others use windows or ordinary memory in the same operation.
TEST_P(Pools, MeetEveryOtherKindOfMemory) {
  run_ranks(4, GetParam(), [](RankContext& rank) {
    for (const char* options :
         {"memory_access=staging", "memory_access=attach", "algorithm=direct,memory_access=staging"}) {
      Communicator comm = rank.communicator(options);
      Window window = comm.allocate_window(2 * kMiB, "window").value();
      std::optional<MemoryPool> pool;
      if (comm.rank() != 0) pool = MemoryPool::create(comm, {.initial_bytes = 4096}).value();
      std::vector<std::byte> heap(2 * kMiB);
      for (int round = 0; round < 8; ++round) {
        std::byte* block = heap.data();
        if ((comm.rank() + round) % 3 == 1) block = window.data();
        if ((comm.rank() + round) % 3 == 2 && pool) block = pool->take(kMiB).value();
        for (const size_t bytes : {size_t{100}, size_t{300'000}}) expect_gathered(comm, block, bytes, round);
      }
    }
  });
}

TEST_P(Pools, AreUsedBySeveralThreads) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    MemoryPool pool = MemoryPool::create(comm, {.label = "shared"}).value();
    constexpr int kThreads = 3, kRounds = 4000;
    struct Block {
      std::byte* begin;
      size_t bytes;
      std::byte fill;
    };
    std::mutex mutex;
    std::vector<Block> passed;  // to be given back by another thread
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(static_cast<unsigned>(t));
        const auto check_and_give = [&](const Block& block) {
          if (!std::all_of(block.begin, block.begin + block.bytes, [&](std::byte b) { return b == block.fill; }))
            ADD_FAILURE() << "the bytes of a block have changed";
          const Status given = pool.give(block.begin);
          if (!given.ok()) ADD_FAILURE() << given.to_string();
        };
        for (int i = 0; i < kRounds; ++i) {
          const size_t bytes = random() % 10 == 0 ? random() % 200'000 : random() % 2000;
          Result<std::byte*> taken = pool.take(bytes);
          if (!taken.ok()) ADD_FAILURE() << taken.status().to_string();
          const Block block{*taken, bytes, static_cast<std::byte>(random())};
          std::memset(block.begin, std::to_integer<int>(block.fill), bytes);
          std::optional<Block> other;
          {
            const std::lock_guard lock(mutex);
            passed.push_back(block);
            if (passed.size() > 40) {
              std::swap(passed[random() % passed.size()], passed.back());
              other = passed.back();
              passed.pop_back();
            }
          }
          if (other) check_and_give(*other);
          if (i % 1000 == 999) pool.trim();
        }
      });
    }
    for (int round = 0; round < 50; ++round) {  // the peers use theirs meanwhile
      std::byte* const block = pool.take(100'000).value();
      expect_gathered(comm, block, 100'000, round);
      ASSERT_TRUE(pool.give(block).ok());
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(pool.report().blocks, passed.size());
    for (const Block& block : passed) EXPECT_TRUE(pool.give(block.begin).ok());
    const size_t reserved = pool.report().reserved_bytes;
    EXPECT_EQ(pool.trim(), reserved);
    EXPECT_EQ(pool.report().segments, 0u);
  });
}

TEST_P(Pools, MayEndBeforeOrAfterTheirCommunicator) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    std::optional<MemoryPool> pool;
    std::byte* block = nullptr;
    {
      Communicator comm = rank.communicator();
      {
        MemoryPool brief = MemoryPool::create(comm).value();
        expect_gathered(comm, brief.take(200'000).value(), 200'000, 1);
      }
      expect_gathered(comm, std::vector<std::byte>(200'000).data(), 200'000, 2);
      pool = MemoryPool::create(comm, {.label = "long-lived"}).value();
      block = pool->take(200'000).value();
      expect_gathered(comm, block, 200'000, 3);
      ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    }
    std::byte* const large = pool->take(3 * kMiB).value();
    Communicator next = rank.communicator();  // to another communicator it is ordinary memory
    expect_gathered(next, block, 200'000, 4);
    expect_gathered(next, large, 3 * kMiB, 5);
    EXPECT_TRUE(pool->give(large).ok());
    MemoryPool other = MemoryPool::create(next).value();
    *pool = std::move(other);  // what the old one had ends
    expect_gathered(next, pool->take(200'000).value(), 200'000, 6);
    pool.reset();
    EXPECT_TRUE(outcome(next.barrier(StreamRef::caller())).ok());
  });
}

TEST_P(Pools, OfOneCommunicatorAreOrdinaryMemoryToItsSplits) {
  run_ranks(4, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    MemoryPool pool = MemoryPool::create(comm).value();
    Communicator half = comm.split(comm.rank() % 2, 0).value().value();
    MemoryPool pool_of_half = MemoryPool::create(half).value();
    for (int round = 0; round < 3; ++round) {
      expect_gathered(half, pool.take(100'000).value(), 100'000, round);
      expect_gathered(half, pool_of_half.take(100'000).value(), 100'000, round);
      expect_gathered(comm, pool_of_half.take(100'000).value(), 100'000, round);
      expect_gathered(comm, pool.take(100'000).value(), 100'000, round);
    }
  });
}

// The same place and the same directory entry, again and again, with other memory behind it.
TEST_P(Pools, SegmentsComeAndGoWithoutBeingMistaken) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("memory_access=staging");
    MemoryPool pool = MemoryPool::create(comm, {.label = "tides"}).value();
    Resources settled{};
    size_t settled_files = 0;
    for (int round = 0; round < 40; ++round) {
      std::byte* const block = pool.take(kMiB + 100'000 * static_cast<size_t>(round % 3)).value();
      expect_gathered(comm, block, 300'000, round);
      ASSERT_TRUE(pool.give(block).ok());
      EXPECT_GT(pool.trim(), 0u);
      EXPECT_EQ(pool.report().reserved_bytes, 0u);
      if (round != 4) continue;
      settled = Resources::now();
      settled_files = segment_files();
    }
    if (rank.mode() == RankMode::kThreads) return;
    const Resources last = Resources::now();
    EXPECT_EQ(segment_files(), settled_files);
    EXPECT_LE(last.shared_mappings, settled.shared_mappings + 4);  // two peers, each may be in the midst of a change
  });
}

TEST_P(Pools, LeaveNothingBehind) {
  run_ranks(2, GetParam(),
            [](RankContext& rank) {
              const size_t files = segment_files();  // none, or those of the run's own
              Resources first{};
              for (int life = 0; life < 6; ++life) {
                {
                  Communicator comm = rank.communicator();
                  MemoryPool pool = MemoryPool::create(comm).value();
                  for (int i = 0; i < 5; ++i) expect_gathered(comm, pool.take(kMiB).value(), kMiB, i);
                  std::optional<MemoryPool> last;
                  if (life % 2 == 0) last = std::move(pool);
                  ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
                }
                if (rank.mode() == RankMode::kProcesses) {
                  EXPECT_EQ(segment_files(), files);
                }
                if (life == 1) first = Resources::now();
              }
              if (rank.mode() == RankMode::kThreads) return;
              EXPECT_EQ(segment_files(), files);
              EXPECT_EQ(Resources::now().shared_mappings, first.shared_mappings);
            },
            {.meeting = Meeting::kFile});
}

// Large messages are read in place, and small ones copied; the receiver takes them wherever it likes.
TEST_P(Pools, CarryMessages) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("memory_access=staging");
    MemoryPool pool = MemoryPool::create(comm).value();
    const Rank peer = 1 - comm.rank();
    for (Rank r = 0; r < comm.rank(); ++r) (void)pool.take(5000).value();
    for (int round = 0; round < 20; ++round) {
      for (const size_t bytes : {size_t{8}, size_t{70'000}, 3 * kMiB}) {
        std::byte* const out = pool.take(bytes).value();
        std::byte* const in = pool.take(bytes).value();
        std::memset(out, 3 * round + comm.rank(), bytes);
        const SendArgs send{.data = out, .count = bytes, .dtype = DType::kU8, .peer = peer};
        const RecvArgs receive{.data = in, .count = bytes, .dtype = DType::kU8, .peer = peer};
        const Status status = outcome(comm.send_recv_many({&send, 1}, {&receive, 1}, StreamRef::caller()));
        ASSERT_TRUE(status.ok()) << status.to_string();
        const auto expected = static_cast<std::byte>(3 * round + peer);
        ASSERT_TRUE(std::all_of(in, in + bytes, [&](std::byte b) { return b == expected; }));
        ASSERT_TRUE(pool.give(out).ok());
        ASSERT_TRUE(pool.give(in).ok());
      }
      pool.trim();
    }
  });
}

// The child has its parent's memory, so it must not divide it.
TEST_P(Pools, ForkedChildIsRefusedAndHarmsNone) {
  if (kPatience > 1 && GetParam() == RankMode::kThreads) GTEST_SKIP() << "forks among threads";
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    std::optional<MemoryPool> pool = MemoryPool::create(comm).value();
    std::byte* const block = pool->take(kMiB).value();
    std::memset(block, 7, kMiB);
    EXPECT_TRUE(works_in_a_child([&] {
      const bool refused = failed_with(pool->take(10).status(), Code::kFailedPrecondition, {"forked"}) &&
                           failed_with(pool->give(block), Code::kFailedPrecondition, {"forked"}) &&
                           MemoryPool::create(comm).status().code() == Code::kFailedPrecondition && pool->trim() == 0;
      pool.reset();
      return refused;
    }));
    EXPECT_EQ(block[kMiB - 1], std::byte{7});
    expect_gathered(comm, block, kMiB, 0);
    EXPECT_TRUE(pool->give(block).ok());
  });
}

TEST(PoolSpeed, WarmBlocksComeAndGoWellBelowAMicrosecond) {
  run_ranks(1, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    MemoryPool pool = MemoryPool::create(comm, {.initial_bytes = 64 * kMiB}).value();
    std::vector<std::byte*> others;
    for (size_t i = 0; i < 1000; ++i) others.push_back(pool.take(i * 37 % 9000).value());
    for (size_t i = 0; i < 1000; i += 2) ASSERT_TRUE(pool.give(others[i]).ok());
    double best_ns = 1e9;
    for (const size_t bytes : {size_t{64}, size_t{5000}, kMiB}) {
      for (int attempt = 0; attempt < 5; ++attempt) {
        constexpr int kTimes = 2000;
        const auto begin = Clock::now();
        for (int i = 0; i < kTimes; ++i) ASSERT_TRUE(pool.give(pool.take(bytes).value()).ok());
        const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
        best_ns = std::min(best_ns, took.count() / kTimes);
      }
      RecordProperty("ns_" + std::to_string(bytes), std::to_string(best_ns));
      EXPECT_LT(best_ns, 1000 * kPatience) << bytes;
      best_ns = 1e9;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, Pools, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace shardcomm::testing
