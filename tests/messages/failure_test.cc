// Sends and receives that cannot end: the two sides differ, the other side never comes, leaves, dies or aborts. All
// ranks hear of it with the same words, and nothing hangs.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

constexpr size_t kLarge = 30'000;

Status send(Communicator& comm, Rank peer, int32_t tag, size_t count, DType dtype = DType::kF32) {
  const std::vector<std::byte> values(count * size_of(dtype));
  return outcome(comm.send({values.data(), count, dtype, peer, tag, "out"}, StreamRef::caller()));
}
Status receive(Communicator& comm, Rank peer, int32_t tag, size_t count, DType dtype = DType::kF32) {
  std::vector<std::byte> values(count * size_of(dtype));
  return outcome(comm.recv({values.data(), count, dtype, peer, tag, "in"}, StreamRef::caller()));
}

class MessageFailure : public ::testing::TestWithParam<RankMode> {};

TEST_P(MessageFailure, SidesThatDifferFailOnEveryRankWithBothCalls) {
  struct Case {
    size_t sent;
    DType sent_dtype;
    size_t received;
    DType received_dtype;
    std::vector<std::string_view> words;
  };
  const Case cases[] = {
      {4, DType::kF32, 3, DType::kF32, {"rank 0 send f32 4 to rank 1 tag 3", "rank 1 recv f32 3 from rank 0 tag 3"}},
      {3, DType::kF32, 4, DType::kF32, {"rank 0 send f32 3 to rank 1", "rank 1 recv f32 4 from rank 0", "'in'"}},
      {3, DType::kF32, 3, DType::kI32, {"rank 0 send f32 3", "rank 1 recv i32 3"}},
      {kLarge, DType::kF32, 4, DType::kF32, {"rank 0 send f32 30000", "rank 1 recv f32 4"}},
      {0, DType::kF32, kLarge, DType::kF32, {"rank 0 send f32 0", "rank 1 recv f32 30000"}},
  };
  for (const Case& differing : cases) {
    run_ranks(3, GetParam(), [&](RankContext& rank) {
      Communicator comm = rank.communicator("timeout_ms=20000");
      Status status;
      if (rank.rank() == 0) status = send(comm, 1, 3, differing.sent, differing.sent_dtype);
      if (rank.rank() == 1) status = receive(comm, 0, 3, differing.received, differing.received_dtype);
      // The rank that had no part in it, and a send that was buffered, hear of it at the next operation.
      if (status.ok()) status = outcome(comm.barrier(StreamRef::caller()));
      EXPECT_TRUE(failed_with(status, Code::kFailedPrecondition, differing.words));
      EXPECT_TRUE(failed_with(comm.health(), Code::kFailedPrecondition, differing.words));
    });
  }
}

TEST_P(MessageFailure, AMessageThatNeverComesTimesOutOnEveryRank) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=400");
    Status status;
    if (rank.rank() == 0) {
      ASSERT_TRUE(send(comm, 1, 8, 5).ok());
      while (comm.health().ok()) std::this_thread::sleep_for(5ms);
      status = comm.health();
    } else {
      const Stopwatch watch;
      status = receive(comm, 0, 7, 5);
      EXPECT_GE(watch.elapsed(), 390ms);
      EXPECT_LT(watch.elapsed(), stretched(1500ms));
    }
    EXPECT_TRUE(
        failed_with(status, Code::kTimedOut,
                    {"rank 1", "recv f32 5 from rank 0 tag 7 'in': no such message has come", "send f32 5 tag 8"}));
  });
}

TEST_P(MessageFailure, ASendThatNobodyReceivesTimesOut) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=20000");
    Status status;
    if (rank.rank() == 0) {
      const std::vector<float> values(kLarge);
      status = outcome(comm.send(
          {.data = values.data(), .count = kLarge, .dtype = DType::kF32, .peer = 1, .tag = 7, .timeout = 300ms},
          StreamRef::caller()));
    } else {
      while (comm.health().ok()) std::this_thread::sleep_for(5ms);
      status = comm.health();
    }
    EXPECT_TRUE(
        failed_with(status, Code::kTimedOut, {"rank 0", "send f32 30000 to rank 1 tag 7: has not been received"}));
  });
}

TEST_P(MessageFailure, APeerThatLeavesIsNamedAndWhatItSentArrives) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    std::optional<Communicator> comm(rank.communicator("timeout_ms=20000"));
    if (rank.rank() == 0) {
      ASSERT_TRUE(send(*comm, 1, 1, 5).ok());
      comm.reset();
      return;
    }
    std::this_thread::sleep_for(50ms);
    EXPECT_TRUE(receive(*comm, 0, 1, 5).ok());
    const Stopwatch watch;
    EXPECT_TRUE(failed_with(receive(*comm, 0, 1, 5), Code::kPeerLost, {"rank 0 left the communicator", "recv f32 5"}));
    EXPECT_LT(watch.elapsed(), stretched(1000ms));
  });
}

TEST_P(MessageFailure, AnAbortEndsARankThatWaits) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=20000");
    if (rank.rank() == 0) {
      std::this_thread::sleep_for(50ms);
      comm.abort("enough");
      return;
    }
    const Stopwatch watch;
    EXPECT_TRUE(failed_with(receive(comm, 0, 1, kLarge), Code::kAborted, {"rank 0 aborted: enough"}));
    EXPECT_LT(watch.elapsed(), stretched(1000ms));
  });
}

TEST_P(MessageFailure, WrongArgumentsAreRefusedBeforeThePeerHears) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    std::vector<float> values(8);
    const auto refused = [&](const Result<Work>& work, std::string_view words) {
      EXPECT_TRUE(failed_with(work.status(), Code::kInvalidArgument, {words}));
    };
    const StreamRef here = StreamRef::caller();
    refused(comm.send({values.data(), 8, DType::kF32, 2, 0}, here), "peer 2 is out of range");
    refused(comm.recv({values.data(), 8, DType::kF32, -1, 0}, here), "peer -1 is out of range");
    refused(comm.send({values.data(), 8, DType::kF32, 1, -1}, here), "tag -1 is negative");
    refused(comm.send({nullptr, 8, DType::kF32, 1, 0}, here), "data is null");
    refused(comm.send({values.data(), SIZE_MAX / 2, DType::kF32, 1, 0}, here), "beyond the address space");
    refused(comm.send({values.data(), 8, static_cast<DType>(99), 1, 0}, here), "dtype 99");
    refused(comm.send({reinterpret_cast<std::byte*>(values.data()) + 1, 1, DType::kF32, 1, 0}, here), "not aligned");
    const RecvArgs overlapping[] = {{values.data(), 5, DType::kF32, 1, 0}, {values.data() + 4, 4, DType::kF32, 1, 0}};
    refused(comm.send_recv_many({}, overlapping, here), "overlaps another message");
    EXPECT_TRUE(outcome(comm.barrier(here)).ok());
    EXPECT_TRUE(outcome(comm.send_recv_many({}, {}, here)).ok());
  });
}

TEST_P(MessageFailure, OpenMessagesAreInTheFlightRecord) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=20000");
    if (rank.rank() == 1) {
      EXPECT_EQ(receive(comm, 0, 4, 6).code(), Code::kAborted);
      return;
    }
    ASSERT_TRUE(send(comm, 1, 3, 2).ok());
    std::this_thread::sleep_for(50ms);
    Result<FlightScan> scan = scan_flight_records();
    ASSERT_TRUE(scan.ok());
    bool found = false, sent = false;
    for (const FlightRecord& record : scan->records) {
      for (const FlightMessage& message : record.messages) {
        found = found || (message.call() == "recv f32 6 from rank 0 tag 4 'in'" && message.started_ns != 0 &&
                          message.finished_ns == 0 && record.rank == 1);
        sent = sent || (message.call() == "send f32 2 to rank 1 tag 3 'out'" && message.finished_ns != 0);
      }
    }
    EXPECT_TRUE(found);
    EXPECT_TRUE(sent);
    const auto groups = group_flight_records(std::move(scan.value().records));
    Result<std::vector<FlightRecord>> again = parse_flight_json(flight_to_json(groups));
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    comm.abort("seen");
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, MessageFailure, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(LostPeer, EndsSendsAndReceivesOfAllOthers) {
  constexpr Rank kDoomed = 2;
  const SharedWords words;
  run_ranks(3, RankMode::kProcesses,
            [&](RankContext& rank) {
              Communicator comm = rank.communicator("timeout_ms=20000");
              ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
              if (rank.rank() == kDoomed) {
                std::this_thread::sleep_for(100ms);
                words.mark_now(0);
                kill(getpid(), SIGKILL);
              }
              const Status status =
                  rank.rank() == 0 ? send(comm, kDoomed, 1, kLarge) : receive(comm, 0, 1, kLarge);  // which waits too
              EXPECT_LT(words.since(0), stretched(1000ms));
              EXPECT_TRUE(failed_with(status, Code::kPeerLost, {"rank 2"}));
            },
            {.doomed = {kDoomed}});
}

TEST(ForkedChild, IsRefused) {
  run_ranks(1, RankMode::kProcesses, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    const pid_t child = fork();
    if (child == 0) {
      const bool refused = send(comm, 0, 1, 1).code() == Code::kFailedPrecondition;
      _exit(refused ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(send(comm, 0, 1, 1).ok());
    EXPECT_TRUE(receive(comm, 0, 1, 1).ok());
  });
}

}  // namespace
}  // namespace shardcomm::testing
