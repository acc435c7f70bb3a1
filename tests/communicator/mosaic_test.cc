// Mosaic windows: all ranks' parts side by side without a copy, ordered by one signal; and ZeRO-3 that reads them.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "tests/support/failure.h"
#include "tests/zero/model.h"

namespace shardcomm::testing {
namespace {

class Mosaics : public ::testing::TestWithParam<RankMode> {};

const size_t kPage = MosaicWindow::granularity_bytes();

uint32_t pattern(Rank rank, size_t word, int round) {
  return static_cast<uint32_t>(word * 2654435761u) ^ static_cast<uint32_t>(rank * 40503 + round * 65537 + 1);
}

void fill(const MosaicWindow& mosaic, Rank rank, int round) {
  auto* words = reinterpret_cast<uint32_t*>(mosaic.shard());
  for (size_t i = 0; i < mosaic.shard_bytes() / 4; ++i) words[i] = pattern(rank, i, round);
}

size_t count_wrong(const MosaicWindow& mosaic, int ranks, int round) {
  const auto* words = reinterpret_cast<const uint32_t*>(mosaic.all());
  const size_t each = mosaic.shard_bytes() / 4;
  size_t wrong = 0;
  for (Rank r = 0; r < ranks; ++r) {
    for (size_t i = 0; i < each; ++i) wrong += words[static_cast<size_t>(r) * each + i] != pattern(r, i, round);
  }
  return wrong;
}

TEST_P(Mosaics, ShowWhatAllRanksWroteBeforeTheGather) {
  for (const int ranks : {1, 2, 3, 5}) {
    run_ranks(ranks, GetParam(), [](RankContext& rank) {
      Communicator comm = rank.communicator();
      for (const size_t pages :
           {size_t{1}, size_t{3}, size_t{700}}) {  // 700: more than a huge page, and no multiple of it
        Result<MosaicWindow> made = comm.allocate_mosaic(pages * kPage, "weights");
        ASSERT_TRUE(made.ok()) << made.status().to_string();
        MosaicWindow mosaic(std::move(*made));
        EXPECT_EQ(mosaic.shard_bytes(), pages * kPage);
        EXPECT_EQ(mosaic.label(), "weights");
        for (int round = 0; round < 8; ++round) {
          fill(mosaic, rank.rank(), round);
          ASSERT_TRUE(outcome(comm.all_gather(mosaic, StreamRef::caller())).ok());
          ASSERT_EQ(count_wrong(mosaic, rank.size(), round), 0u) << "round " << round;
          ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
        }
      }
    });
  }
}

TEST_P(Mosaics, MoveNoBytesAndAreInputsOfOtherOperations) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    MosaicWindow mosaic = must(comm.allocate_mosaic(2 * kPage, "inputs"));
    fill(mosaic, rank.rank(), 0);
    const TrafficCounters before = comm.traffic();
    ASSERT_TRUE(outcome(comm.all_gather(mosaic, StreamRef::caller())).ok());
    EXPECT_EQ(comm.traffic().bytes_sent, before.bytes_sent);
    EXPECT_EQ(comm.traffic().operations, before.operations + 1);
    std::vector<std::byte> copied(mosaic.shard_bytes() * 3);
    ASSERT_TRUE(
        outcome(comm.all_gather({mosaic.shard(), copied.data(), mosaic.shard_bytes(), DType::kU8}, StreamRef::caller()))
            .ok());
    EXPECT_EQ(std::memcmp(copied.data(), mosaic.all(), copied.size()), 0);
  });
}

TEST_P(Mosaics, AreGatheredInOrderOnStreams) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    MosaicWindow mosaic = must(comm.allocate_mosaic(kPage, "on streams"));
    HostStream stream = must(HostStream::create("compute"));
    size_t wrong = 0;
    for (int round = 0; round < 50; ++round) {
      must(stream.ref().enqueue([&, round] { fill(mosaic, rank.rank(), round); }));
      must(comm.all_gather(mosaic, stream.ref()));
      must(stream.ref().enqueue([&, round] { wrong += count_wrong(mosaic, rank.size(), round); }));
      must(comm.barrier(stream.ref()));
    }
    must(stream.ref().synchronize(std::chrono::steady_clock::now() + std::chrono::seconds(20)));
    EXPECT_EQ(wrong, 0u);
  });
}

TEST_P(Mosaics, RefuseSizesThatAreNotWholePages) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    for (const size_t bytes : {size_t{0}, size_t{1}, kPage - 1, kPage + 4}) {
      const auto refused = comm.allocate_mosaic(bytes, "odd");
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
      EXPECT_NE(refused.status().to_string().find("mosaic 'odd'"), std::string::npos) << refused.status().to_string();
    }
    ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok()) << "a refused argument fails nothing";
    const auto uneven = comm.allocate_mosaic(rank.rank() == 0 ? kPage : 2 * kPage, "uneven");
    ASSERT_FALSE(uneven.ok());
    EXPECT_NE(uneven.status().to_string().find("different sizes"), std::string::npos) << uneven.status().to_string();
  });
}

TEST_P(Mosaics, ACopyingGatherOnAnotherRankIsAMismatch) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    MosaicWindow mosaic = must(comm.allocate_mosaic(kPage, "mixed"));
    std::vector<std::byte> copied(2 * kPage);
    const Status status =
        rank.rank() == 0
            ? outcome(comm.all_gather(mosaic, StreamRef::caller()))
            : outcome(comm.all_gather({mosaic.shard(), copied.data(), kPage, DType::kU8}, StreamRef::caller()));
    EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status.to_string();
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, Mosaics, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(Mosaic, IsForReadingOnly) {
  run_ranks(1, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    const MosaicWindow mosaic = must(comm.allocate_mosaic(kPage, "constant"));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      signal(SIGSEGV, SIG_DFL);
      *const_cast<volatile std::byte*>(mosaic.all()) = std::byte{1};
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
    EXPECT_EQ(*mosaic.shard(), std::byte{0});
  });
}

// Large enough units that whole pages are no waste, and vectors that stay below one.
ModelShape large_shape() { return {.inputs = 256, .width = 128, .blocks = 2}; }

TEST(ZeroMosaic, GivesTheBitsOfGathersWithoutTheirMemoryAndTraffic) {
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks, RankMode::kThreads, [](RankContext& rank) {
      Communicator comm = rank.communicator();
      const auto run = [&](bool mosaic, MemoryReport& memory, uint64_t& sent) {
        const auto units = model_units(large_shape());
        ZeroOptions options;
        options.mosaic = mosaic;
        options.poison_freed = true;
        ZeroEngine engine = must(ZeroEngine::create(comm, units, options));
        AdamW adam = must(AdamW::create(engine, {}));
        must(fill_with_noise(engine));
        TrainingPlan plan{.first_step = 0, .steps = 1};
        (void)train(engine, adam, large_shape(), plan, StreamRef::caller());
        engine.reset_peak();
        const uint64_t before = comm.traffic().bytes_sent;
        plan = {.first_step = 1, .steps = 4};
        Trajectory trajectory = train(engine, adam, large_shape(), plan, StreamRef::caller());
        sent = comm.traffic().bytes_sent - before;
        memory = engine.memory();
        const ZeroEstimate estimate = must(estimate_zero(units, comm.size(), options));
        EXPECT_EQ(memory.peak_bytes, estimate.peak_bytes) << (mosaic ? "mosaic" : "gathered");
        trajectory.norms.push_back(all_parameters(engine)[0][0]);
        return trajectory;
      };
      MemoryReport gathered_memory, mosaic_memory;
      uint64_t gathered_sent = 0, mosaic_sent = 0;
      const Trajectory gathered = run(false, gathered_memory, gathered_sent);
      const Trajectory mosaic = run(true, mosaic_memory, mosaic_sent);
      EXPECT_TRUE(gathered == mosaic);
      if (rank.size() > 1) {
        EXPECT_LT(mosaic_memory.peak_bytes, gathered_memory.peak_bytes);
        EXPECT_LT(mosaic_sent, gathered_sent * 2 / 3);
      } else {  // a single rank gathers nothing in either way
        EXPECT_EQ(mosaic_memory.peak_bytes, gathered_memory.peak_bytes);
      }
    });
  }
}

// An owner that is done early must not write what a slower rank still reads, though nothing else is between them.
TEST(ZeroMosaic, ValuesChangeOnlyWhenAllRanksHaveRead) {
  for (const RankMode mode : rank_modes()) {
    run_ranks(2, mode, [](RankContext& rank) {
      Communicator comm = rank.communicator();
      const std::vector<UnitSpec> units = {{"u", {{.name = "w", .shape = {4 * kPage / sizeof(float)}}}}};
      ZeroOptions options;
      options.mosaic = true;
      ZeroEngine engine = must(ZeroEngine::create(comm, units, options));
      for (int round = 0; round < 6; ++round) {
        const auto value = static_cast<float>(round);
        must(engine.fill_parameters([&](UnitId, uint32_t, size_t, std::span<float> values) {
          std::fill(values.begin(), values.end(), value);
        }));
        must(engine.before(0, Pass::kForward, StreamRef::caller()));
        if (rank.rank() == round % 2) std::this_thread::sleep_for(20ms);
        const std::vector<float> seen = values_of(engine.parameters(0)[0]);
        EXPECT_EQ(static_cast<size_t>(std::count(seen.begin(), seen.end(), value)), seen.size()) << "round " << round;
        must(engine.after(0, Pass::kForward, StreamRef::caller()));
        must(engine.finish_step(StreamRef::caller()));
      }
    });
  }
}

}  // namespace
}  // namespace shardcomm::testing
