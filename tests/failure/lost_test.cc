// Ranks that end: by kill -9 in the middle of an operation or while the others sleep, by exit, or by destroying their
// communicator too early. The others hear of it within a second, by name, and nothing is left behind.
#include <unistd.h>

#include <csignal>
#include <functional>

#include "tests/support/failure.h"
#include "tests/support/reference.h"

namespace shardcomm::testing {
namespace {

constexpr int kRanks = 4;
constexpr Rank kDoomed = 3;
enum : size_t { kDeath };  // in SharedWords

[[noreturn]] void die(const SharedWords& words) {
  words.mark_now(kDeath);
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

void expect_lost(const SharedWords& words, Communicator& comm, const Status& status) {
  EXPECT_LT(words.since(kDeath), stretched(1000ms)) << status.to_string();
  EXPECT_TRUE(failed_with(status, Code::kPeerLost, {"rank 3"}));
  EXPECT_TRUE(failed_with(comm.health(), Code::kPeerLost, {"rank 3"}));
  EXPECT_TRUE(failed_with(outcome(comm.barrier(StreamRef::caller())), Code::kPeerLost, {"rank 3"}));
}

using Step = std::function<Status(Communicator&)>;

// Runs `step` on the survivors while the doomed rank, in place of it, waits a little and dies.
void lose_one(const std::string& options, const Step& step) {
  const SharedWords words;
  const std::set<std::string> before = files_in("/dev/shm");
  run_ranks(kRanks, RankMode::kProcesses,
            [&](RankContext& rank) {
              Communicator comm = rank.communicator(options);
              ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
              if (rank.rank() == kDoomed) {
                std::this_thread::sleep_for(120ms);
                die(words);
              }
              expect_lost(words, comm, step(comm));
            },
            {.doomed = {kDoomed}});
  EXPECT_EQ(files_in("/dev/shm"), before);
}

TEST(LostRank, EndsABarrierThatOthersSleepIn) {
  lose_one("", [](Communicator& comm) { return outcome(comm.barrier(StreamRef::caller())); });
}

TEST(LostRank, EndsALargeOperationThatOthersSleepIn) {
  for (const char* options : {"memory_access=attach", "memory_access=staging"}) {
    lose_one(options, [](Communicator& comm) {
      std::vector<float> in(1 << 20), out(1 << 20);
      return outcome(
          comm.reduce_scatter({in.data(), out.data(), in.size() / kRanks, DType::kF32}, StreamRef::caller()));
    });
  }
}

TEST(LostRank, EndsOperationsOnAStream) {
  lose_one("", [](Communicator& comm) {
    HostStream stream = make_stream();
    std::vector<float> in(1000), out(4000);
    std::vector<Work> works;
    for (int i = 0; i < 10; ++i) {
      Result<Work> work = comm.all_gather({in.data(), out.data(), in.size(), DType::kF32}, stream.ref());
      if (!work.ok()) return work.status();
      works.push_back(*work);
    }
    for (const Work& work : works) EXPECT_EQ(work.synchronize(Clock::now() + 5s).code(), Code::kPeerLost);
    return works.back().status();
  });
}

TEST(LostRank, EndsTheMakingOfAWindow) {
  lose_one("", [](Communicator& comm) { return comm.allocate_window(1 << 20, "w").status(); });
}

TEST(LostRank, EndsASplit) {
  lose_one("", [](Communicator& comm) { return comm.split(comm.rank() % 2, 0).status(); });
}

// Nobody waits for it: health() finds out all the same.
TEST(LostRank, IsSeenByHealthAlone) {
  lose_one("", [](Communicator& comm) {
    const Clock::time_point deadline = Clock::now() + 5s;
    Status health;
    while ((health = comm.health()).ok() && Clock::now() < deadline) std::this_thread::sleep_for(5ms);
    return health;
  });
}

// Ends at a moment of its own, in the middle of whatever all are doing.
struct Traffic {
  std::string_view name, options;
  size_t count;
  bool window, asynchronous;
};

void PrintTo(const Traffic& traffic, std::ostream* out) { *out << traffic.name; }

class LostRankInOperation : public ::testing::TestWithParam<Traffic> {};

TEST_P(LostRankInOperation, IsNoticedByAll) {
  const Traffic& traffic = GetParam();
  const std::set<std::string> before = files_in("/dev/shm");
  for (uint64_t round = 0; round < 4; ++round) {
    SCOPED_TRACE("seed " + std::to_string(test_seed()) + ", round " + std::to_string(round));
    const SharedWords words;
    run_ranks(kRanks, RankMode::kProcesses,
              [&](RankContext& rank) {
                Communicator comm = rank.communicator(traffic.options);
                const size_t bytes = traffic.count * kRanks * sizeof(float);
                std::vector<std::byte> heap(2 * bytes);
                std::optional<Window> window;
                if (traffic.window) window = comm.allocate_window(2 * bytes, "data").value();
                std::byte* in = window ? window->data() : heap.data();
                std::byte* out = in + bytes;
                HostStream stream = make_stream();
                const StreamRef on = traffic.asynchronous ? stream.ref() : StreamRef::caller();
                ASSERT_TRUE(outcome(comm.barrier(on)).ok());
                std::thread killer;
                if (rank.rank() == kDoomed) {
                  killer = std::thread([&] {
                    std::this_thread::sleep_for(std::chrono::microseconds(random_bits(test_seed(), round) % 20'000));
                    die(words);
                  });
                }
                Status status;
                while (status.ok()) {
                  status = outcome(comm.all_gather({in, out, traffic.count, DType::kF32}, on));
                  if (status.ok()) status = outcome(comm.reduce_scatter({out, in, traffic.count, DType::kF32}, on));
                  if (status.ok()) status = outcome(comm.all_reduce({in, in, traffic.count, DType::kF32}, on));
                }
                if (killer.joinable()) killer.join();  // never returns
                expect_lost(words, comm, status);
              },
              {.doomed = {kDoomed}});
  }
  EXPECT_EQ(files_in("/dev/shm"), before);
}

INSTANTIATE_TEST_SUITE_P(
    Traffic, LostRankInOperation,
    ::testing::Values(Traffic{"tiny", "", 3, false, false}, Traffic{"window", "", 200'000, true, false},
                      Traffic{"attached", "memory_access=attach", 200'000, false, false},
                      Traffic{"attached_asynchronous", "memory_access=attach", 50'000, false, true},
                      Traffic{"staged", "memory_access=staging", 200'000, false, false},
                      Traffic{"small_ring", "memory_access=staging,staging_bytes=16384", 50'000, false, true}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(LostRank, MayHaveExitedWithoutDestroying) {
  const SharedWords words;
  run_ranks(kRanks, RankMode::kProcesses,
            [&](RankContext& rank) {
              Communicator comm = rank.communicator();
              ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
              if (rank.rank() == kDoomed) {
                std::this_thread::sleep_for(50ms);
                words.mark_now(kDeath);
                _exit(0);
              }
              expect_lost(words, comm, outcome(comm.barrier(StreamRef::caller())));
            },
            {.doomed = {kDoomed}});
}

class LeftEarly : public ::testing::TestWithParam<RankMode> {};

TEST_P(LeftEarly, IsAnErrorForThoseWhoStillCall) {
  const SharedWords words;
  run_ranks(kRanks, GetParam(), [&](RankContext& rank) {
    {
      Communicator comm = rank.communicator();
      ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
      if (rank.rank() != kDoomed) {
        expect_lost(words, comm, outcome(comm.barrier(StreamRef::caller())));
        return;
      }
      std::this_thread::sleep_for(100ms);
      words.mark_now(kDeath);
    }
    std::this_thread::sleep_for(300ms);  // lives on
  });
}

// Whoever has what it came for may go, though others still read, and those others succeed.
TEST_P(LeftEarly, IsFineAfterTheLastOperation) {
  for (size_t count : {size_t{1}, size_t{100'000}}) {
    run_ranks(kRanks, GetParam(), [&](RankContext& rank) {
      for (uint64_t round = 0; round < 3; ++round) {
        std::vector<float> in(count, static_cast<float>(rank.rank() + 1)), out(count);
        Communicator comm = rank.communicator();
        std::this_thread::sleep_for(
            std::chrono::milliseconds(random_bits(test_seed(), round, static_cast<uint64_t>(rank.rank())) % 10));
        const Status status =
            outcome(comm.all_reduce({in.data(), out.data(), count, DType::kF32}, StreamRef::caller()));
        ASSERT_TRUE(status.ok()) << status.to_string();
        EXPECT_EQ(out[count - 1], 10.0f);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, LeftEarly, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(LostRank, EndsTheMeetingInTime) {
  run_ranks(3, RankMode::kProcesses,
            [](RankContext& rank) {
              if (rank.rank() == 2) _exit(0);
              const Stopwatch watch;
              const Result<Communicator> comm = rank.try_communicator("init_timeout_ms=700");
              EXPECT_TRUE(failed_with(comm.status(), Code::kTimedOut, {"rank"}));
              EXPECT_LT(watch.elapsed(), stretched(1500ms));
            },
            {.doomed = {2}});
}

}  // namespace
}  // namespace shardcomm::testing
