// Making communicators, what they say about themselves, and what is left of them.
#include <fcntl.h>
#include <unistd.h>

#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

class Communicators : public ::testing::TestWithParam<RankMode> {};

TEST_P(Communicators, KnowTheirPlace) {
  for (const int ranks : {1, 2, 5}) {
    run_ranks(ranks, GetParam(), [&](RankContext& rank) {
      Communicator comm = rank.communicator("timeout_ms=4321");
      EXPECT_EQ(comm.rank(), rank.rank());
      EXPECT_EQ(comm.size(), ranks);
      EXPECT_EQ(comm.options().timeout, 4321ms);
      EXPECT_EQ(comm.topology().world_size, ranks);
      EXPECT_EQ(comm.topology().node_of, std::vector<int>(static_cast<size_t>(ranks), 0));
      EXPECT_TRUE(comm.health().ok());
      Communicator moved(std::move(comm));
      EXPECT_EQ(moved.rank(), rank.rank());
      EXPECT_TRUE(outcome(moved.barrier(StreamRef::caller())).ok());
    });
  }
}

TEST_P(Communicators, WorkWithManyRanksOnFewCores) {
  run_ranks(17, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("staging_bytes=64K");
    int64_t sum = 0;
    const int64_t mine = rank.rank();
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(outcome(comm.all_reduce({&mine, &sum, 1, DType::kI64}, StreamRef::caller())).ok());
      ASSERT_EQ(sum, 16 * 17 / 2);
    }
  });
}

TEST(CommunicatorGroup, IsChecked) {
  Result<std::unique_ptr<Store>> store = open_store("local://group-is-checked");
  ASSERT_TRUE(store.ok());
  const auto create = [&](Rank rank, int size) {
    return Communicator::create(**store, {.rank = rank, .size = size, .device = {}}, Options()).status();
  };
  EXPECT_TRUE(failed_with(create(0, 0), Code::kInvalidArgument, {"0 ranks"}));
  EXPECT_TRUE(failed_with(create(0, -3), Code::kInvalidArgument, {"-3"}));
  EXPECT_TRUE(failed_with(create(2, 2), Code::kInvalidArgument, {"rank 2", "2 ranks"}));
  EXPECT_TRUE(failed_with(create(-1, 2), Code::kInvalidArgument, {"rank -1"}));
  const Status cuda =
      Communicator::create(**store, {.rank = 0, .size = 1, .device = {Device::Kind::kCuda, 0}}, Options()).status();
  EXPECT_TRUE(failed_with(cuda, Code::kUnsupported, {"CUDA"}));
}

// Whatever one rank does differently, all ranks hear of it in the same words.
TEST_P(Communicators, DifferentOptionsAreTheSameErrorOnAll) {
  struct Difference {
    const char* usual;
    const char* odd;
    std::vector<std::string_view> words;
  };
  const Difference differences[] = {
      {"chunk_bytes=65536", "chunk_bytes=8192", {"65536", "8192", "chunk_bytes"}},
      {"staging_bytes=65536", "staging_bytes=131072", {"65536", "131072", "staging_bytes"}},
      {"memory_access=auto", "memory_access=staging", {"auto", "staging", "memory_access"}},
      {"transports=auto", "transports=shm", {"auto", "shm", "transports"}},
      {"transports=shm", "transports=ucx,shm", {"shm", "ucx,shm"}},
  };
  for (const Difference& difference : differences) {
    SCOPED_TRACE(difference.odd);
    const RankReport report = run_ranks(3, GetParam(), [&](RankContext& rank) {
      const Stopwatch watch;
      const Status status = rank.try_communicator(rank.rank() == 1 ? difference.odd : difference.usual).status();
      EXPECT_LT(watch.elapsed(), stretched(3s));
      EXPECT_TRUE(failed_with(status, Code::kFailedPrecondition, {"rank 1"}));
      for (std::string_view word : difference.words)
        EXPECT_TRUE(failed_with(status, Code::kFailedPrecondition, {word}));
      const std::string text = status.to_string();
      rank.publish(text.substr(text.find("differ")));
    });
    EXPECT_EQ(report.published[0], report.published[1]);
    EXPECT_EQ(report.published[0], report.published[2]);
  }
}

TEST_P(Communicators, OptionsThatConcernOneRankMayDiffer) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm =
        rank.communicator(rank.rank() == 0 ? "spin_us=0,timeout_ms=9000,log=error" : "spin_us=50,timeout_ms=8000");
    EXPECT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
  });
}

TEST_P(Communicators, UnusableTransportsAreTheSameErrorOnAll) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    const Status status = rank.try_communicator("transports=ucx").status();
    EXPECT_TRUE(failed_with(status, Code::kUnavailable, {"ucx", "shm"}));
  });
}

TEST_P(Communicators, DifferentSizesAreAnErrorOnAll) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Result<std::unique_ptr<Store>> store = open_store(rank.next_store_uri());
    ASSERT_TRUE(store.ok());
    Result<Options> options = Options::parse("init_timeout_ms=1500");
    const int size = rank.rank() == 1 ? 4 : 3;
    const Stopwatch watch;
    const Status status =
        Communicator::create(**store, {.rank = rank.rank(), .size = size, .device = {}}, *options).status();
    EXPECT_FALSE(status.ok());
    EXPECT_LT(watch.elapsed(), stretched(4s));
  });
}

TEST_P(Communicators, TheSameRankTwiceIsAnErrorOnAll) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Result<std::unique_ptr<Store>> store = open_store(rank.next_store_uri());
    ASSERT_TRUE(store.ok());
    Result<Options> options = Options::parse("init_timeout_ms=1500");
    const Stopwatch watch;
    const Rank claimed = rank.rank() == 2 ? 1 : rank.rank();
    const Status status = Communicator::create(**store, {.rank = claimed, .size = 3, .device = {}}, *options).status();
    EXPECT_FALSE(status.ok());
    EXPECT_LT(watch.elapsed(), stretched(4s));
  });
}

TEST_P(Communicators, LeaveNothingBehind) {
  const std::set<std::string> before = files_in("/dev/shm");
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Result<std::unique_ptr<Store>> store = open_store(rank.next_store_uri());
    ASSERT_TRUE(store.ok());
    Result<Options> options = Options::parse("timeout_ms=20000,staging_bytes=65536");
    Resources settled{};
    for (int i = 0; i < 200; ++i) {
      Result<Communicator> comm =
          Communicator::create(**store, {.rank = rank.rank(), .size = rank.size(), .device = {}}, *options);
      ASSERT_TRUE(comm.ok()) << "after " << i << ": " << comm.status().to_string();
      Result<Window> window = comm->allocate_window(100'000, "w");
      ASSERT_TRUE(window.ok()) << window.status().to_string();
      ASSERT_TRUE(outcome(comm->barrier(StreamRef::caller())).ok());
      if (i % 10 == 0) {
        ASSERT_TRUE(comm->split(0, 0).ok());
      }
      // Both ranks hold the same things while they count.
      if (i == 20) settled = Resources::now();
      if (i == 199) {
        const Resources now = Resources::now();
        EXPECT_LE(now.descriptors, settled.descriptors + 2);
        EXPECT_LE(now.threads, settled.threads);
        if (kPatience == 1) {  // sanitizers map for themselves
          EXPECT_LE(now.mappings, settled.mappings + 4);
        }
      }
      ASSERT_TRUE(outcome(comm->barrier(StreamRef::caller())).ok());
    }
  });
  EXPECT_EQ(files_in("/dev/shm"), before);
}

// The descriptors of this process that are memory files, by what is open.
std::vector<std::string> memory_files() {
  std::vector<std::string> found;
  for (const std::string& name : files_in("/proc/self/fd")) {
    std::error_code error;
    std::string target = std::filesystem::read_symlink("/proc/self/fd/" + name, error);
    if (target.starts_with("/memfd:")) found.push_back(std::move(target));
  }
  return found;
}

size_t resident_pages() {
  size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident;
}

// Each costs one descriptor, that of its flight recorder, and nothing once it is gone.
TEST_P(Communicators, AThousandOfOneRankLeaveNothing) {
  run_ranks(1, GetParam(), [](RankContext& rank) {
    Result<std::unique_ptr<Store>> store = open_store(rank.next_store_uri());
    ASSERT_TRUE(store.ok());
    const std::set<std::string> shared = files_in("/dev/shm");
    EXPECT_TRUE(memory_files().empty());
    Resources settled{};
    size_t pages = 0;
    for (int i = 0; i < 1000; ++i) {
      const size_t descriptors = Resources::now().descriptors;
      Result<Communicator> comm = Communicator::create(**store, {.rank = 0, .size = 1, .device = {}}, Options());
      ASSERT_TRUE(comm.ok()) << "after " << i << ": " << comm.status().to_string();
      ASSERT_TRUE(outcome(comm->barrier(StreamRef::caller())).ok());
      if (i % 100 != 99) continue;
      EXPECT_EQ(Resources::now().descriptors, descriptors + 1);
      EXPECT_EQ(memory_files(), std::vector<std::string>{"/memfd:shardcomm-flight (deleted)"});
      if (i == 99) {
        settled = Resources::now();
        pages = resident_pages();
      }
    }
    const Resources now = Resources::now();
    EXPECT_EQ(now.descriptors + 1, settled.descriptors);
    EXPECT_LE(now.threads, settled.threads);
    if (kPatience == 1) {  // sanitizers keep what was freed
      EXPECT_LE(now.mappings, settled.mappings);
      EXPECT_LE(resident_pages(), pages + 256);  // 1 MiB
    }
    EXPECT_TRUE(memory_files().empty());
    EXPECT_EQ(files_in("/dev/shm"), shared);
  });
}

TEST_P(Communicators, AddNearlyNothingForOneRank) {
  run_ranks(1, GetParam(), [](RankContext& rank) {
    Communicator first = rank.communicator();
    const Resources before = Resources::now();
    Communicator second = rank.communicator();
    const Resources after = Resources::now();
    EXPECT_LE(after.threads, before.threads + 1);
    EXPECT_LE(after.descriptors, before.descriptors + 4);
    float value = 3, sum = 0;
    EXPECT_TRUE(outcome(second.all_reduce({&value, &sum, 1, DType::kF32}, StreamRef::caller())).ok());
    EXPECT_EQ(sum, 3);
  });
}

// Two communicators of the same ranks, each used by its own thread.
TEST_P(Communicators, TwoAtOnceDoNotMix) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator first = rank.communicator("memory_access=attach"), second = rank.communicator("memory_access=staging");
    const auto use = [&](Communicator& comm, uint32_t salt) {
      std::vector<uint32_t> in(30'000), out(90'000);
      for (uint32_t i = 0; i < 60; ++i) {
        in.assign(i % 2 == 0 ? 3 : in.capacity(), i * 100 + salt + static_cast<uint32_t>(rank.rank()));
        const Status status =
            outcome(comm.all_gather({in.data(), out.data(), in.size(), DType::kU32}, StreamRef::caller()));
        ASSERT_TRUE(status.ok()) << status.to_string();
        for (uint32_t r = 0; r < 3; ++r) ASSERT_EQ(out[(r + 1) * in.size() - 1], i * 100 + salt + r);
      }
    };
    std::thread other([&] { use(second, 50'000); });
    use(first, 0);
    other.join();
  });
}

// A failure of one leaves the other alone.
TEST_P(Communicators, FailOnTheirOwn) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator first = rank.communicator(), second = rank.communicator();
    if (rank.rank() == 0) first.abort("only this one");
    EXPECT_TRUE(failed_with(outcome(first.barrier(StreamRef::caller())), Code::kAborted, {"only this one"}));
    EXPECT_TRUE(outcome(second.barrier(StreamRef::caller())).ok());
    EXPECT_TRUE(second.health().ok());
  });
}

TEST_P(Communicators, CountWhatTheyMove) {
  for (const char* options : {"memory_access=attach", "memory_access=attach_gathers", "memory_access=staging"}) {
    run_ranks(4, GetParam(), [&](RankContext& rank) {
      Communicator comm = rank.communicator(options);
      constexpr uint64_t kRanks = 4;
      TrafficCounters before = comm.traffic();
      const auto expect = [&](std::string_view what, const Result<Work>& work, uint64_t sent, uint64_t received) {
        ASSERT_TRUE(outcome(work).ok()) << what;
        const TrafficCounters now = comm.traffic();
        EXPECT_EQ(now.operations - before.operations, 1u) << what;
        EXPECT_EQ(now.bytes_sent - before.bytes_sent, sent) << what;
        EXPECT_EQ(now.bytes_received - before.bytes_received, received) << what;
        before = now;
      };
      const auto me = static_cast<uint64_t>(rank.rank());
      const StreamRef here = StreamRef::caller();
      for (const uint64_t count : {uint64_t{10}, uint64_t{50'000}}) {
        std::vector<float> in(count * kRanks), out(count * kRanks);
        const uint64_t bytes = count * 4;
        expect("all_gather", comm.all_gather({in.data(), out.data(), count, DType::kF32}, here), 3 * bytes, 3 * bytes);
        expect("reduce_scatter", comm.reduce_scatter({in.data(), out.data(), count, DType::kF32}, here), 3 * bytes,
               3 * bytes);
        expect("all_to_all", comm.all_to_all({in.data(), out.data(), count, DType::kF32}, here), 3 * bytes, 3 * bytes);
        expect("broadcast", comm.broadcast({in.data(), count, DType::kF32, 2}, here), me == 2 ? 3 * bytes : 0,
               me == 2 ? 0 : bytes);
        const size_t counts[] = {count, 0, 1, count};
        const uint64_t sum = (2 * count + 1) * 4, mine = counts[me] * 4;
        expect("all_gather_v", comm.all_gather_v({in.data(), out.data(), counts, DType::kF32}, here), 3 * mine,
               sum - mine);
        expect("reduce_scatter_v", comm.reduce_scatter_v({in.data(), out.data(), counts, DType::kF32}, here),
               sum - mine, 3 * mine);
        const auto rooted = [&](std::string_view what, const Result<Work>& work, bool to_root) {
          const uint64_t at_root = 3 * bytes, at_others = bytes;
          const uint64_t goes = me == 1 ? (to_root ? 0 : at_root) : (to_root ? at_others : 0);
          const uint64_t comes = me == 1 ? (to_root ? at_root : 0) : (to_root ? 0 : at_others);
          expect(what, work, goes, comes);
        };
        const DType f32 = DType::kF32;
        const float* const in_data = in.data();
        float* const out_data = out.data();
        rooted("gather",
               comm.gather({.shard = in_data, .full = out_data, .count = count, .dtype = f32, .root = 1}, here), true);
        rooted("scatter",
               comm.scatter({.full = in_data, .shard = out_data, .count = count, .dtype = f32, .root = 1}, here),
               false);
        rooted("reduce", comm.reduce({.in = in_data, .out = out_data, .count = count, .dtype = f32, .root = 1}, here),
               true);
        const BroadcastItem broadcasts[] = {{.data = in.data(), .count = count - 3, .dtype = f32},
                                            {.data = in.data() + count, .count = 3, .dtype = f32}};
        rooted("broadcast_many", comm.broadcast_many(broadcasts, 1, here), false);
        // Rank r gives `count` elements to rank r + 1 only, and keeps two.
        std::vector<size_t> in_counts(kRanks, 0), out_counts(kRanks, 0);
        in_counts[me] = out_counts[me] = 2;
        in_counts[(me + 1) % kRanks] = out_counts[(me + 3) % kRanks] = count;
        expect(
            "all_to_all_v",
            comm.all_to_all_v(
                {.in = in_data, .in_counts = in_counts, .out = out_data, .out_counts = out_counts, .dtype = f32}, here),
            bytes, bytes);
        // In messages every rank shows all that it has; in two steps, a part at a time.
        const bool is_small = count == 10;
        const uint64_t summed = is_small ? count : count / 64 * 64, moved = is_small ? 3 * summed : 6 * (summed / 4);
        const AllReduceItem sums[] = {{.in = in_data, .out = out_data, .count = summed, .dtype = f32}};
        expect("all_reduce_many", comm.all_reduce_many(sums, here), moved * 4, moved * 4);
      }
      expect("barrier", comm.barrier(here), 0, 0);
    });
  }
}

TEST_P(Communicators, ExplainWhatTheyWouldDo) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    for (int c = 0; c < kCollectiveCount; ++c) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{1} << 24}) {
        const CollectivePlan plan =
            comm.explain({.collective = static_cast<Collective>(c), .count = count, .dtype = DType::kF32});
        EXPECT_TRUE(plan.algorithm.starts_with(name(static_cast<Collective>(c)))) << plan.to_text();
        EXPECT_EQ(plan.transport, "shm");
        EXPECT_FALSE(plan.reason.empty());
        EXPECT_GE(plan.predicted_us, 0.0);
      }
    }
    EXPECT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
  });
}

// One rank has nothing to show anybody: that is no reason to copy gigabytes as if they fitted a message.
TEST(Communicator, CopiesLargeBuffersOfOneRankDirectly) {
  run_ranks(1, RankMode::kThreads, [](RankContext& rank) {
    const Communicator comm = rank.communicator();
    for (int c = 0; c < kCollectiveCount; ++c) {
      const auto collective = static_cast<Collective>(c);
      if (collective == Collective::kBarrier) continue;
      const CollectivePlan plan = comm.explain({.collective = collective, .count = 1 << 26, .dtype = DType::kF32});
      EXPECT_TRUE(plan.algorithm.ends_with(traits(collective).has_own_counts() ? "_pairs" : "_direct"))
          << plan.to_text();
    }
  });
}

TEST(Transports, AreReported) {
  const std::vector<TransportReport> reports = probe_transports({});
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports.front().name, "shm");
  EXPECT_TRUE(reports.front().usable.ok()) << reports.front().usable.to_string();
  for (const TransportReport& report : probe_transports({Device::Kind::kCuda, 0})) {
    if (report.name == "shm") {
      EXPECT_FALSE(report.usable.ok());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Communicators, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace shardcomm::testing
