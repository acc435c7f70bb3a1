// Many tiny operations one after the other: what a missing fence, a lost wake-up or a slot used too early would break.
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

struct Stress {
  RankMode mode;
  int ranks;
  int operations;
};

void PrintTo(const Stress& stress, std::ostream* out) { *out << stress.ranks << ' ' << name(stress.mode); }

class TinyOperations : public ::testing::TestWithParam<Stress> {};

// Every operation carries new values, so that an old message is not taken for a new one.
TEST_P(TinyOperations, AreAllExact) {
  const Stress& stress = GetParam();
  run_ranks(
      stress.ranks, stress.mode,
      [&](RankContext& rank) {
        Communicator comm = rank.communicator();
        const auto n = static_cast<size_t>(stress.ranks);
        std::vector<uint32_t> full(n * 3);
        for (uint32_t i = 0; i < static_cast<uint32_t>(stress.operations); ++i) {
          const uint32_t count = i % 3 + 1;
          uint32_t shard[3];
          for (uint32_t k = 0; k < count; ++k) shard[k] = i * 64 + static_cast<uint32_t>(rank.rank()) * 4 + k;
          const Result<Work> gathered = comm.all_gather({shard, full.data(), count, DType::kU32}, StreamRef::caller());
          ASSERT_TRUE(gathered.ok()) << gathered.status().to_string();
          for (uint32_t r = 0; r < n; ++r) {
            for (uint32_t k = 0; k < count; ++k)
              ASSERT_EQ(full[r * count + k], i * 64 + r * 4 + k) << "operation " << i;
          }
          if (i % 8 == 0) {
            ASSERT_TRUE(comm.barrier(StreamRef::caller()).ok());
          }
          if (i % 32 != 0) continue;
          uint32_t sum = 0;
          ASSERT_TRUE(comm.all_reduce({&i, &sum, 1, DType::kU32}, StreamRef::caller()).ok());
          ASSERT_EQ(sum, i * static_cast<uint32_t>(n));
        }
      },
      {.deadline = 300s});
}

// Tests in the default run take seconds; collectives_sweep_test does 10^5 on each.
INSTANTIATE_TEST_SUITE_P(Ranks, TinyOperations,
                         ::testing::Values(Stress{RankMode::kThreads, 2, 100'000},
                                           Stress{RankMode::kThreads, 4, 30'000}, Stress{RankMode::kThreads, 8, 10'000},
                                           Stress{RankMode::kProcesses, 2, 100'000},
                                           Stress{RankMode::kProcesses, 8, 10'000}),
                         [](const auto& info) {
                           return std::string(name(info.param.mode)) + "_" + std::to_string(info.param.ranks);
                         });

class ManyStreams : public ::testing::TestWithParam<RankMode> {};

// One thread enqueues on two streams and its own; the order of the calls holds across them.
TEST_P(ManyStreams, KeepTheOrderOfTheCalls) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    HostStream first = make_stream(), second = make_stream();
    const StreamRef streams[] = {first.ref(), second.ref(), StreamRef::caller()};
    uint64_t value = static_cast<uint64_t>(rank.rank());
    uint64_t expected = 0 + 1 + 2;
    Work last;
    for (int i = 0; i < 3'000; ++i) {
      // Each operation works on what the one before it left, though on another stream.
      Result<Work> work = comm.all_reduce({&value, &value, 1, DType::kU64}, streams[i * i % 7 % 3]);
      ASSERT_TRUE(work.ok()) << work.status().to_string();
      EXPECT_EQ(work->epoch(), static_cast<uint64_t>(i) + 1);
      last = *work;
      if (i > 0) expected *= 3;
    }
    ASSERT_TRUE(last.synchronize(Clock::now() + 20s).ok());
    EXPECT_EQ(value, expected);
  });
}

// Operations that sleep and operations that are ready at once, with ranks out of step by a whole queue.
TEST_P(ManyStreams, RanksMayBeFarApart) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    HostStream stream = make_stream();
    std::vector<uint32_t> in(20'000), out(60'000);
    std::vector<Work> works;
    for (uint32_t i = 0; i < 200; ++i) {
      if (i % 50 == static_cast<uint32_t>(rank.rank()) * 10) {
        ASSERT_TRUE(stream.ref().enqueue([] { std::this_thread::sleep_for(5ms); }).ok());
      }
      works.push_back(comm.all_gather({in.data(), out.data(), in.size(), DType::kU32}, stream.ref()).value());
      ASSERT_TRUE(stream.ref()
                      .enqueue([&, i] {
                        for (size_t r = 0; r < 3; ++r) {
                          EXPECT_EQ(out[r * in.size()], i);
                          EXPECT_EQ(out[(r + 1) * in.size() - 1], i);
                        }
                        ++in.front(), ++in.back();  // from now on: nobody may see it in operation i
                      })
                      .ok());
    }
    for (const Work& work : works) ASSERT_TRUE(work.synchronize(Clock::now() + 20s).ok());
    ASSERT_TRUE(stream.ref().synchronize(Clock::now() + 20s).ok());
    EXPECT_EQ(in.front(), 200u);
  });
}

// The same where one rank is read, or one reads: who waits for whom differs, and no rank may change what it gives too
// early.
TEST_P(ManyStreams, RootsMayBeFarApart) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    HostStream stream = make_stream();
    constexpr size_t kCount = 20'000;
    std::vector<uint32_t> in(3 * kCount), out(3 * kCount);
    const auto step = [&](const Result<Work>& work, auto&& check) {
      ASSERT_TRUE(work.ok()) << work.status().to_string();
      ASSERT_TRUE(stream.ref()
                      .enqueue([&in, check] {
                        check();
                        for (uint32_t& value : in) ++value;  // from now on: nobody may see it in this operation
                      })
                      .ok());
    };
    const size_t pairs[] = {kCount, kCount, kCount};
    for (uint32_t i = 0; i < 40; ++i) {
      if (i % 10 == static_cast<uint32_t>(rank.rank()) * 3) {
        ASSERT_TRUE(stream.ref().enqueue([] { std::this_thread::sleep_for(5ms); }).ok());
      }
      const auto root = static_cast<Rank>(i % 3);
      const bool is_root = rank.rank() == root;
      const uint32_t value = 4 * i;
      step(comm.gather({.shard = in.data(), .full = out.data(), .count = kCount, .dtype = DType::kU32, .root = root},
                       stream.ref()),
           [&out, is_root, value] {
             for (size_t r = 0; is_root && r < 3; ++r) EXPECT_EQ(out[(r + 1) * kCount - 1], value);
           });
      step(comm.scatter({.full = in.data(), .shard = out.data(), .count = kCount, .dtype = DType::kU32, .root = root},
                        stream.ref()),
           [&out, value] { EXPECT_EQ(out[kCount - 1], value + 1); });
      step(comm.reduce({.in = in.data(), .out = out.data(), .count = kCount, .dtype = DType::kU32, .root = root},
                       stream.ref()),
           [&out, is_root, value] {
             if (is_root) {
               EXPECT_EQ(out[kCount - 1], 3 * (value + 2));
             }
           });
      step(comm.all_to_all_v(
               {.in = in.data(), .in_counts = pairs, .out = out.data(), .out_counts = pairs, .dtype = DType::kU32},
               stream.ref()),
           [&out, value] {
             for (size_t r = 0; r < 3; ++r) EXPECT_EQ(out[(r + 1) * kCount - 1], value + 3);
           });
    }
    ASSERT_TRUE(stream.ref().synchronize(Clock::now() + 20s).ok());
    EXPECT_EQ(in.front(), 160u);
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, ManyStreams, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace shardcomm::testing
