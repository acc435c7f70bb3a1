// Many groups at once on a machine that is busy with other things: inputs stay byte for byte what they were (a
// reduction that borrows its input as scratch shows only under load and beyond cache-sized messages), groups do not
// mix, and one communicator a thread is all that threads need to agree on.
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "tests/support/failure.h"
#include "tests/support/reference.h"

namespace shardcomm::testing {
namespace {

constexpr int kRanks = 3;
constexpr size_t kGroups = 5;

// Keeps cores busy while it lives.
class Load {
 public:
  explicit Load(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] {
        while (!over_.load(std::memory_order_relaxed)) {
        }
      });
    }
  }
  ~Load() {
    over_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

// What one thread does with its group: `rounds` of everything that reads an input, each checked.
class GroupWork {
 public:
  GroupWork(Communicator& comm, uint64_t seed, size_t count)
      : comm_(comm), count_(count), whole_(kRanks * count * sizeof(float)), shard_(count * sizeof(float)) {
    fill_elements(whole_.data(), seed, comm.rank(), 0, kRanks * count, DType::kF32);
    std::memcpy(shard_.data(), whole_.data(), shard_.size());
    before_ = whole_;
    std::vector<std::vector<std::byte>> all;
    std::vector<const std::byte*> sources;
    for (Rank r = 0; r < kRanks; ++r) {
      fill_elements(all.emplace_back(whole_.size()).data(), seed, r, 0, kRanks * count, DType::kF32);
      expected_full_.insert(expected_full_.end(), all.back().begin(),
                            all.back().begin() + static_cast<ptrdiff_t>(shard_.size()));
    }
    for (const auto& one : all) sources.push_back(one.data());
    expected_sum_.resize(whole_.size());
    reduce_elements(expected_sum_.data(), sources, kRanks * count, DType::kF32, ReduceOp::kSum);
  }

  void run(int rounds) {
    const StreamRef here = StreamRef::caller();
    std::vector<std::byte> out(whole_.size());
    for (int i = 0; i < rounds; ++i) {
      std::fill(out.begin(), out.end(), std::byte{0xa5});
      ASSERT_TRUE(outcome(comm_.reduce_scatter({whole_.data(), out.data(), count_, DType::kF32}, here)).ok());
      const size_t mine = static_cast<size_t>(comm_.rank()) * shard_.size();
      ASSERT_EQ(first_difference(out.data(), expected_sum_.data() + mine, count_, DType::kF32), std::nullopt);
      ASSERT_EQ(whole_, before_) << "reduce_scatter wrote to its input";
      ASSERT_TRUE(outcome(comm_.all_reduce({whole_.data(), out.data(), kRanks * count_, DType::kF32}, here)).ok());
      ASSERT_EQ(first_difference(out.data(), expected_sum_.data(), kRanks * count_, DType::kF32), std::nullopt);
      ASSERT_EQ(whole_, before_) << "all_reduce wrote to its input";
      ASSERT_TRUE(outcome(comm_.all_gather({shard_.data(), out.data(), count_, DType::kF32}, here)).ok());
      ASSERT_EQ(out, expected_full_);
      ASSERT_TRUE(std::equal(shard_.begin(), shard_.end(), before_.begin())) << "all_gather wrote to its input";
      ASSERT_TRUE(outcome(comm_.all_to_all({whole_.data(), out.data(), count_, DType::kF32}, here)).ok());
      ASSERT_EQ(whole_, before_) << "all_to_all wrote to its input";
    }
  }

 private:
  Communicator& comm_;
  size_t count_;
  std::vector<std::byte> whole_, shard_, before_, expected_full_, expected_sum_;
};

class Concurrent : public ::testing::TestWithParam<RankMode> {};

// Of 48 bytes to a megabyte a shard, all at the same time, and with each way of reaching peers' memory.
TEST_P(Concurrent, GroupsUnderLoadLeaveTheirInputsAlone) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  run_ranks(kRanks, GetParam(), [](RankContext& rank) {
    constexpr size_t kCounts[kGroups] = {12, 3'001, 16'384, 65'537, 262'144};
    Communicator parent = rank.communicator("memory_access=attach"),
                 staging = rank.communicator("memory_access=staging");
    std::vector<Communicator> groups;
    for (size_t g = 0; g < kGroups; ++g)
      groups.push_back(std::move((g % 2 == 0 ? parent : staging).split(0, rank.rank()).value()).value());
    const Load load(rank.rank() == 0 ? 2 : 0);
    std::vector<std::thread> threads;
    for (size_t g = 0; g < kGroups; ++g) {
      threads.emplace_back(
          [&, g] { GroupWork(groups[g], random_bits(test_seed(), g), kCounts[g]).run(g < 2 ? 60 : 6); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(outcome(parent.barrier(StreamRef::caller())).ok());
    EXPECT_TRUE(outcome(staging.barrier(StreamRef::caller())).ok());
  });
}

// Threads take turns on one communicator, as its rule allows: handing it over is all that is needed.
TEST_P(Concurrent, ThreadsMayTakeTurns) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    std::mutex mutex;
    std::condition_variable turn;
    uint32_t next = 0;  // every rank runs operation i on thread i % 4
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (uint32_t done = 0; done < 100; ++done) {
          std::unique_lock lock(mutex);
          turn.wait(lock, [&] { return next % 4 == t; });
          uint32_t sum = 0;
          ASSERT_TRUE(outcome(comm.all_reduce({&next, &sum, 1, DType::kU32}, StreamRef::caller())).ok());
          ASSERT_EQ(sum, 2 * next);
          ++next;
          turn.notify_all();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, Concurrent, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace shardcomm::testing
