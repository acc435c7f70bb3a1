// Records of running jobs as other processes see them: stopped and waiting ranks, splits, failures and their dumps.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "tests/flight/support.h"

namespace shardcomm::testing {
namespace {

constexpr int kRanks = 4;
constexpr Rank kStopped = 2;

const FlightPlace& place_of(const FlightGroup& group, const std::vector<FlightPlace>& places, Rank rank) {
  for (size_t i = 0; i < places.size(); ++i) {
    if (group.records[i].rank == rank) return places[i];
  }
  throw std::runtime_error("no record of rank " + std::to_string(rank));
}

void look_at_stopped_rank() {
  const FlightGroup group = live_group();
  ASSERT_EQ(group.records.size(), size_t{kRanks});
  EXPECT_TRUE(group.missing.empty());
  EXPECT_EQ(group.job, group.communicator);
  const std::vector<FlightPlace> places = group.places();
  for (Rank rank = 0; rank < kRanks; ++rank) {
    SCOPED_TRACE(rank);
    const FlightPlace& place = place_of(group, places, rank);
    EXPECT_EQ(place.finished_epoch, 3u);
    EXPECT_EQ(place.late, rank == kStopped);
    EXPECT_GT(place.for_ns, 100'000'000);
    EXPECT_LT(place.for_ns, 60'000'000'000);
    const FlightRecord& record = group.records[static_cast<size_t>(rank)];
    EXPECT_EQ(record.process_state == 'T', rank == kStopped) << record.process_state;
    if (rank == kStopped) {
      EXPECT_EQ(place.state, FlightState::kIdle);
      EXPECT_FALSE(place.current.has_value());
    } else {
      EXPECT_EQ(place.state, FlightState::kWaiting);
      ASSERT_TRUE(place.current.has_value());
      EXPECT_EQ(place.current->epoch, 4u);
      EXPECT_EQ(place.current->call(), "all_gather f32 10 'the late one'");
    }
  }
  const std::string difference = group.first_difference();
  EXPECT_NE(difference.find("op 4 all_gather f32 10 'the late one'"), std::string::npos) << difference;
  EXPECT_NE(difference.find("ranks 0,1,3 started"), std::string::npos) << difference;
  EXPECT_NE(difference.find("rank 2 has not called it"), std::string::npos) << difference;
}

TEST(FlightRecords, ShowAStoppedRank) {
  run_ranks(kRanks, RankMode::kProcesses,
            [](RankContext& rank) {
              Communicator comm = rank.communicator();
              for (int i = 0; i < 3; ++i) ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
              if (rank.rank() == kStopped) raise(SIGSTOP);
              std::vector<float> in(10), out(40);
              std::thread observer([&] {
                if (rank.rank() != 0) return;
                std::this_thread::sleep_for(400ms);
                look_at_stopped_rank();
                comm.abort("seen enough");
              });
              const Status status = outcome(
                  comm.all_gather({in.data(), out.data(), 10, DType::kF32, "the late one"}, StreamRef::caller()));
              observer.join();
              EXPECT_TRUE(failed_with(status, Code::kAborted, {"seen enough"}));
            },
            {.doomed = {kStopped}});
}

// Operations that wait in a stream behind one that cannot go on.
TEST(FlightRecords, ShowQueuedOperations) {
  run_ranks(2, RankMode::kProcesses, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    HostStream stream = make_stream();
    std::vector<Work> works;
    if (rank.rank() == 0) {
      for (int i = 0; i < 3; ++i) works.push_back(comm.barrier(stream.ref()).value());
      std::this_thread::sleep_for(200ms);
      const FlightGroup group = live_group();
      ASSERT_EQ(group.records.size(), 2u);
      const FlightRecord& mine = group.records[0];
      ASSERT_EQ(mine.operations.size(), 3u);
      EXPECT_NE(mine.operations[0].started_ns, 0);
      EXPECT_EQ(mine.operations[0].finished_ns, 0);
      EXPECT_EQ(mine.operations[1].started_ns, 0);
      EXPECT_EQ(group.places()[0].state, FlightState::kWaiting);
      EXPECT_TRUE(group.places()[1].late);
    } else {
      std::this_thread::sleep_for(700ms);
      for (int i = 0; i < 3; ++i) works.push_back(comm.barrier(stream.ref()).value());
    }
    for (const Work& work : works) EXPECT_TRUE(work.synchronize(Clock::now() + 10s).ok());
    const FlightGroup group = live_group();
    const auto& operations = group.records[static_cast<size_t>(rank.rank())].operations;
    ASSERT_EQ(operations.size(), 3u);
    for (const FlightOperation& op : operations) {
      EXPECT_NE(op.finished_ns, 0);
      EXPECT_EQ(op.outcome, Code::kOk);
      EXPECT_LE(op.enqueued_ns, op.started_ns);
      EXPECT_LE(op.started_ns, op.finished_ns);
    }
    ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());  // both are still there to be seen
  });
}

constexpr unsigned kNobody = 65534;

// For good. Fails without root's rights, and in a user namespace that has no other users.
bool become_nobody() { return setgid(kNobody) == 0 && setuid(kNobody) == 0; }

bool can_become_nobody() {
  const pid_t child = fork();
  if (child == 0) _exit(become_nobody() ? 0 : 1);
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

// In a process of another user: 0 when it sees that it may not look, and nothing else.
int look_as_nobody(pid_t owner) {
  close_range(3, ~0u, 0);  // what a fork has of its parent, a program of another user has not
  if (!become_nobody()) return 1;
  const auto scan = scan_flight_records();
  if (!scan.ok() || scan.value().denied_count == 0) return 2;
  for (const FlightRecord& record : scan.value().records) {
    if (record.pid == owner) return 3;
  }
  return read_flight_records(owner).status().native_value() == EACCES ? 0 : 4;
}

TEST(FlightRecords, CountThoseOfOtherUsers) {
  if (!can_become_nobody()) GTEST_SKIP() << "only root, where there are others, can become another user";
  run_ranks(1, RankMode::kProcesses, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    const pid_t owner = getpid(), child = fork();
    if (child == 0) _exit(look_as_nobody(owner));
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
}

class FlightIdentities : public ::testing::TestWithParam<RankMode> {};

TEST_P(FlightIdentities, AreEqualOnTheRanksOfACommunicatorOnly) {
  const RankReport report = run_ranks(4, GetParam(), [](RankContext& rank) {
    Communicator first = rank.communicator(), second = rank.communicator();
    auto half = first.split(rank.rank() % 2, 0);
    ASSERT_TRUE(half.ok() && half->has_value());
    ASSERT_TRUE(outcome(second.barrier(StreamRef::caller())).ok());
    auto scan = scan_flight_records();
    ASSERT_TRUE(scan.ok());
    auto mine = read_flight_records(getpid());
    ASSERT_TRUE(mine.ok());
    std::set<uint64_t> own;  // of this process: threads share it with all ranks
    for (const FlightRecord& record : *mine) own.insert(record.communicator);
    EXPECT_EQ(own.size(), rank.mode() == RankMode::kThreads ? 4u : 3u);
    size_t splits = 0;
    for (const FlightGroup& group : group_flight_records(scan->records)) {
      if (!own.contains(group.communicator)) continue;
      EXPECT_TRUE(group.missing.empty());
      EXPECT_EQ(group.size, static_cast<int>(group.records.size()));
      EXPECT_EQ(group.size, group.job == group.communicator ? 4 : 2);
      splits += group.job != group.communicator;
    }
    EXPECT_EQ(splits, rank.mode() == RankMode::kThreads ? 2u : 1u);
    ASSERT_TRUE(outcome(second.barrier(StreamRef::caller())).ok());
  });
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(read_flight_records(getpid()).status().code(), Code::kUnavailable) << "something is left";
}

INSTANTIATE_TEST_SUITE_P(Modes, FlightIdentities, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

class FlightDumps : public ::testing::TestWithParam<RankMode> {};

TEST_P(FlightDumps, NameAllRanksOfAFailure) {
  const DumpDirectory directory;
  const SharedWords words;
  run_ranks(kRanks, GetParam(), [&](RankContext& rank) {
    Communicator comm = rank.communicator(directory.option() + ",timeout_ms=300");
    ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    EXPECT_TRUE(directory.files().empty());
    ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    std::vector<float> in(8), out(8);
    if (rank.rank() == 1) words.await(0, kRanks - 1);
    const Status status = outcome(comm.all_reduce({in.data(), out.data(), 8, DType::kF32}, StreamRef::caller()));
    EXPECT_TRUE(failed_with(status, Code::kTimedOut, {"rank 1"}));
    words[0] += 1;
  });
  ASSERT_EQ(directory.files().size(), size_t{kRanks}) << "one a rank, and nothing unfinished";
  const std::vector<FlightGroup> groups = directory.groups();
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_TRUE(groups[0].missing.empty());
  for (const FlightRecord& record : groups[0].records) {
    EXPECT_EQ(record.reason, "failure");
    EXPECT_TRUE(failed_with(record.failure, Code::kTimedOut, {"op 3 all_reduce f32 8", "waiting for rank 1"}));
    const FlightOperation& last = record.operations.back();
    EXPECT_EQ(last.epoch, record.rank == 1 ? 2u : 3u);
    if (record.rank != 1) {
      EXPECT_EQ(last.outcome, Code::kTimedOut);
    }
  }
  const std::string difference = groups[0].first_difference();
  EXPECT_NE(difference.find("op 3 all_reduce f32 8 sum: ranks 0,2,3 timed_out; rank 1 has not called it"),
            std::string::npos)
      << difference;
}

TEST_P(FlightDumps, ShowBothSidesOfAMismatch) {
  const DumpDirectory directory;
  run_ranks(3, GetParam(), [&](RankContext& rank) {
    Communicator comm = rank.communicator(directory.option());
    std::vector<float> in(32), out(96);
    const Status status = rank.rank() == 2
                              ? outcome(comm.all_reduce({in.data(), out.data(), 8, DType::kBF16}, StreamRef::caller()))
                              : outcome(comm.all_gather({in.data(), out.data(), 8, DType::kF32}, StreamRef::caller()));
    EXPECT_TRUE(failed_with(status, Code::kFailedPrecondition, {"rank 2"}));
  });
  const std::vector<FlightGroup> groups = directory.groups();
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].first_difference(), "op 1: ranks 0,1 all_gather f32 8; rank 2 all_reduce bf16 8 sum");
}

TEST_P(FlightDumps, AreWrittenOnAbortAndOnLateDiscovery) {
  const DumpDirectory directory;
  run_ranks(2, GetParam(), [&](RankContext& rank) {
    Communicator comm = rank.communicator(directory.option());
    ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    if (rank.rank() == 0) {
      comm.abort("out of paper");
    } else {
      while (comm.health().ok()) std::this_thread::sleep_for(1ms);  // an idle rank asks
    }
    EXPECT_TRUE(failed_with(comm.health(), Code::kAborted, {"out of paper"}));
  });
  const std::vector<FlightGroup> groups = directory.groups();
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_TRUE(groups[0].missing.empty());
  for (const FlightRecord& record : groups[0].records)
    EXPECT_TRUE(failed_with(record.failure, Code::kAborted, {"out of paper"}));
}

TEST_P(FlightDumps, ShowAllKindsOfOperations) {
  const DumpDirectory directory;
  run_ranks(2, GetParam(), [&](RankContext& rank) {
    Communicator comm = rank.communicator(directory.option());
    std::vector<float> in(64), out(64);
    const StreamRef here = StreamRef::caller();
    const size_t counts[] = {3, 4}, counts_of_pairs[] = {1, 1};
    const GatherItem items[] = {{in.data(), out.data(), 2, DType::kF32},
                                {in.data() + 8, out.data() + 8, 5, DType::kU8}};
    ASSERT_TRUE(outcome(comm.broadcast({in.data(), 6, DType::kF32, 1}, here)).ok());
    ASSERT_TRUE(outcome(comm.reduce_scatter({in.data(), out.data(), 5, DType::kF32, ReduceOp::kMin}, here)).ok());
    ASSERT_TRUE(
        outcome(comm.all_to_all({in.data(), out.data(), 9, DType::kU8, "a \"quoted\"\n\xc3\xa9\xff label"}, here))
            .ok());
    ASSERT_TRUE(outcome(comm.all_gather_v({in.data(), out.data(), counts, DType::kF32}, here)).ok());
    ASSERT_TRUE(outcome(comm.all_gather_many(items, here, "many")).ok());
    ASSERT_TRUE(comm.allocate_window(100, "w").ok());
    ASSERT_TRUE(outcome(comm.barrier(here)).ok());
    const BroadcastItem broadcasts[] = {{.data = in.data(), .count = 2, .dtype = DType::kF32},
                                        {.data = in.data() + 8, .count = 3, .dtype = DType::kU8}};
    ASSERT_TRUE(outcome(comm.broadcast_many(broadcasts, 1, here)).ok());
    ASSERT_TRUE(
        outcome(
            comm.gather({.shard = in.data(), .full = out.data(), .count = 2, .dtype = DType::kF32, .root = 1}, here))
            .ok());
    ASSERT_TRUE(outcome(comm.all_to_all_v({.in = in.data(),
                                           .in_counts = counts_of_pairs,
                                           .out = out.data(),
                                           .out_counts = counts_of_pairs,
                                           .dtype = DType::kF32},
                                          here))
                    .ok());
    comm.abort("done");
  });
  for (const FlightGroup& group : directory.groups()) {
    ASSERT_EQ(group.records.size(), 2u);
    const auto& ops = group.records[0].operations;
    ASSERT_EQ(ops.size(), 12u);
    EXPECT_EQ(ops[0].call(), "broadcast f32 6 from root 1");
    EXPECT_EQ(ops[1].call(), "reduce_scatter f32 5 min");
    EXPECT_EQ(ops[2].call(), "all_to_all u8 9 'a \"quoted\"\n\xc3\xa9\xef\xbf\xbd label'");
    EXPECT_EQ(ops[3].call(), "all_gather_v f32 7");
    EXPECT_EQ(ops[4].call(), "all_gather_many 7 in 2 items 'many'");
    EXPECT_EQ(ops[5].call(), "agreement 'allocate_window w'");
    EXPECT_EQ(ops[8].call(), "barrier");
    EXPECT_EQ(ops[9].call(), "broadcast_many 5 in 2 items from root 1");
    EXPECT_EQ(ops[10].call(), "gather f32 2 to root 1");
    EXPECT_EQ(ops[11].call(), "all_to_all_v f32");
    // What JSON was made of it here reads back the same.
    auto again = parse_flight_json(flight_to_json({group}));
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    ASSERT_EQ(again->size(), 2u);
    for (size_t i = 0; i < ops.size(); ++i) {
      EXPECT_EQ((*again)[0].operations[i].call(), ops[i].call());
      EXPECT_EQ((*again)[0].operations[i].started_ns, ops[i].started_ns);
      EXPECT_EQ((*again)[0].operations[i].finished_ns, ops[i].finished_ns);
    }
    EXPECT_EQ((*again)[1].failure.to_string(), group.records[1].failure.to_string());
  }
}

TEST_P(FlightDumps, RefuseAMissingDirectoryAtOnce) {
  run_ranks(2, GetParam(), [&](RankContext& rank) {
    const Status status = rank.try_communicator(rank.rank() == 1 ? "dump_dir=/nowhere/at/all" : "").status();
    EXPECT_TRUE(failed_with(status, Code::kUnavailable, {"rank 1", "dump_dir", "/nowhere/at/all"}));
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, FlightDumps, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace shardcomm::testing
