// Ranks that come late: in time, they are waited for, asleep; too late, the call fails on every rank and says who.
#include <csignal>
#include <functional>

#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

using Call = std::function<Status(Communicator&)>;

struct Waiting {
  std::string_view name;
  Call call;
};

// One of each kind of wait. The larger ones read peers' memory; 40000 f32 do not fit into a message.
std::vector<Waiting> waitings() {
  const auto buffers = std::make_shared<std::pair<std::vector<float>, std::vector<float>>>(200'000, 200'000);
  float* in = buffers->first.data();
  float* out = buffers->second.data();
  const StreamRef here = StreamRef::caller();
  return {
      {"barrier", [=](Communicator& comm) { return outcome(comm.barrier(here)); }},
      {"small all_gather",
       [=](Communicator& comm) {
         return outcome(comm.all_gather({in, out, 1, DType::kF32}, here));
       }},
      {"all_gather",
       [=](Communicator& comm) {
         return outcome(comm.all_gather({in, out, 40000, DType::kF32}, here));
       }},
      {"reduce_scatter",
       [=](Communicator& comm) {
         return outcome(comm.reduce_scatter({in, out, 40000, DType::kF32}, here));
       }},
      {"all_reduce",
       [=, keep = buffers](Communicator& comm) {
         return outcome(comm.all_reduce({in, out, 90000, DType::kF32}, here));
       }},
      {"broadcast",
       [=](Communicator& comm) {
         return outcome(comm.broadcast({in, 90000, DType::kF32, 1}, here));
       }},
      {"all_to_all",
       [=](Communicator& comm) {
         return outcome(comm.all_to_all({in, out, 40000, DType::kF32}, here));
       }},
      {"all_gather_v",
       [=](Communicator& comm) {
         const size_t counts[] = {40000, 0, 7};
         return outcome(comm.all_gather_v({in, out, counts, DType::kF32}, here));
       }},
      {"reduce_scatter_v",
       [=](Communicator& comm) {
         const size_t counts[] = {40000, 0, 7};
         return outcome(comm.reduce_scatter_v({in, out, counts, DType::kF32}, here));
       }},
      {"all_gather_many",
       [=](Communicator& comm) {
         const GatherItem items[] = {{in, out, 20000, DType::kF32}, {in + 50000, out + 100000, 3, DType::kBF16}};
         return outcome(comm.all_gather_many(items, here));
       }},
      {"reduce_scatter_many",
       [=](Communicator& comm) {
         const ReduceItem items[] = {{in, out, 20000, DType::kF32}, {in + 100000, out + 100000, 3, DType::kI32}};
         return outcome(comm.reduce_scatter_many(items, here));
       }},
      {"gather",
       [=](Communicator& comm) {
         return outcome(comm.gather({.shard = in, .full = out, .count = 40000, .dtype = DType::kF32, .root = 1}, here));
       }},
      {"scatter",
       [=](Communicator& comm) {
         return outcome(
             comm.scatter({.full = in, .shard = out, .count = 40000, .dtype = DType::kF32, .root = 0}, here));
       }},
      {"reduce",
       [=](Communicator& comm) {
         return outcome(comm.reduce({.in = in, .out = out, .count = 90000, .dtype = DType::kF32, .root = 1}, here));
       }},
      {"all_to_all_v",
       [=](Communicator& comm) {
         const auto count = [](Rank source, Rank reader) {
           return source == 0 ? size_t{40000} : reader == 2 ? 7u : 0u;
         };
         std::vector<size_t> in_counts, out_counts;
         for (Rank r = 0; r < comm.size(); ++r) {
           in_counts.push_back(count(comm.rank(), r));
           out_counts.push_back(count(r, comm.rank()));
         }
         return outcome(comm.all_to_all_v(
             {.in = in, .in_counts = in_counts, .out = out, .out_counts = out_counts, .dtype = DType::kF32}, here));
       }},
      {"all_reduce_many",
       [=](Communicator& comm) {
         const AllReduceItem items[] = {{.in = in, .out = out, .count = 40000, .dtype = DType::kF32},
                                        {.in = in + 50000, .out = in + 50000, .count = 30000, .dtype = DType::kI32}};
         return outcome(comm.all_reduce_many(items, here));
       }},
      {"broadcast_many",
       [=](Communicator& comm) {
         const BroadcastItem items[] = {{.data = in, .count = 40000, .dtype = DType::kF32},
                                        {.data = in + 50000, .count = 3, .dtype = DType::kBF16}};
         return outcome(comm.broadcast_many(items, 1, here));
       }},
      {"register_window", [=](Communicator& comm) { return comm.register_window(in, 800'000, "w").status(); }},
      {"allocate_window", [=](Communicator& comm) { return comm.allocate_window(100, "w").status(); }},
      {"split", [=](Communicator& comm) { return comm.split(0, 0).status(); }},
  };
}

class Late : public ::testing::TestWithParam<RankMode> {};

TEST_P(Late, WithinTheDeadlineSucceeds) {
  for (const char* options : {"timeout_ms=5000,memory_access=attach", "timeout_ms=5000,memory_access=staging"}) {
    run_ranks(3, GetParam(), [&](RankContext& rank) {
      Communicator comm = rank.communicator(options);
      for (const Waiting& waiting : waitings()) {
        SCOPED_TRACE(waiting.name);
        if (rank.rank() == 1) std::this_thread::sleep_for(60ms);
        const Status status = waiting.call(comm);
        EXPECT_TRUE(status.ok()) << status.to_string();
      }
    });
  }
}

TEST_P(Late, BeyondTheDeadlineFailsOnEveryRank) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Result<std::unique_ptr<Store>> store = open_store(rank.next_store_uri());
    ASSERT_TRUE(store.ok());
    Result<Options> options = Options::parse("timeout_ms=150,init_timeout_ms=20000");
    for (const Waiting& waiting : waitings()) {
      SCOPED_TRACE(waiting.name);
      Result<Communicator> comm =
          Communicator::create(**store, {.rank = rank.rank(), .size = rank.size(), .device = {}}, *options);
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      if (rank.rank() == 2) std::this_thread::sleep_for(350ms);
      const Stopwatch watch;
      const Status status = waiting.call(*comm);
      if (rank.rank() == 2) {
        EXPECT_LT(watch.elapsed(), stretched(100ms)) << "the others gave up long ago";
      } else {
        EXPECT_GE(watch.elapsed(), 70ms);  // or less than its limit, told by one that began a little earlier
        EXPECT_LT(watch.elapsed(), stretched(350ms));
      }
      // Who has not arrived, the last operation it finished and the one it is at: none yet.
      EXPECT_TRUE(failed_with(status, Code::kTimedOut, {"waiting for rank 2 (finished op 0, started op 0)"}));
      EXPECT_TRUE(failed_with(comm->health(), Code::kTimedOut, {"rank 2"}));
      EXPECT_TRUE(failed_with(waiting.call(*comm), Code::kTimedOut, {}));
    }
  });
}

// Meeting has a limit of its own, and keeps it as operations keep theirs.
TEST_P(Late, MeetingWithinItsDeadlineSucceeds) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    if (rank.rank() == static_cast<Rank>(rank.size() - 1)) std::this_thread::sleep_for(400ms);
    Communicator comm = rank.communicator("timeout_ms=100,init_timeout_ms=10000");
    if (rank.rank() == 0)
      std::this_thread::sleep_for(400ms);  // now it is the first that is late, and the store's keeper
    Communicator again = rank.communicator("timeout_ms=100,init_timeout_ms=10000");
    EXPECT_TRUE(again.health().ok());
  });
}

TEST_P(Late, MeetingBeyondItsDeadlineFailsOnEveryRank) {
  for (const Rank late : {2, 0}) {
    run_ranks(3, GetParam(), [&](RankContext& rank) {
      if (rank.rank() == late) std::this_thread::sleep_for(1200ms);
      const Stopwatch watch;
      const Status status = rank.try_communicator("timeout_ms=60000,init_timeout_ms=400").status();
      EXPECT_LT(watch.elapsed(), stretched(1600ms)) << status.to_string();
      if (rank.rank() == late) {  // finds those gone who gave up, or nobody
        EXPECT_TRUE(status.code() == Code::kTimedOut || status.code() == Code::kPeerLost) << status.to_string();
      } else {
        EXPECT_GE(watch.elapsed(), 390ms);
        EXPECT_TRUE(failed_with(status, Code::kTimedOut, {"rank " + std::to_string(late)}));
      }
    });
  }
}

TEST_P(Late, AsynchronousCallsFailInTheirWorkAndInWhatFollows) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=200");
    HostStream stream = make_stream();
    ASSERT_TRUE(outcome(comm.barrier(stream.ref())).ok());
    if (rank.rank() == 1) {
      std::this_thread::sleep_for(600ms);
      EXPECT_TRUE(failed_with(comm.barrier(stream.ref()).status(), Code::kTimedOut, {"rank 1"}));
      return;
    }
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) {
      Result<Work> work = comm.barrier(stream.ref());
      ASSERT_TRUE(work.ok());
      EXPECT_EQ(work->epoch(), static_cast<uint64_t>(i) + 2);
      works.push_back(*work);
    }
    EXPECT_EQ(works[0].status().code(), Code::kUnavailable);
    const Stopwatch watch;
    for (const Work& work : works)
      EXPECT_TRUE(failed_with(work.synchronize(Clock::now() + 5s), Code::kTimedOut, {"rank 1"}));
    EXPECT_LT(watch.elapsed(), stretched(500ms)) << "those behind the first do not wait again";
    EXPECT_TRUE(failed_with(comm.barrier(stream.ref()).status(), Code::kTimedOut, {"rank 1"}));
  });
}

// A deadline of one's own is not the operation's: giving up on a Work leaves the operation alone.
TEST_P(Late, AnImpatientSynchronizeChangesNothing) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=8000");
    HostStream stream = make_stream();
    if (rank.rank() == 1) std::this_thread::sleep_for(300ms);
    Result<Work> work = comm.barrier(stream.ref());
    ASSERT_TRUE(work.ok());
    if (rank.rank() == 0) {
      EXPECT_EQ(work->synchronize(Clock::now() + 20ms).code(), Code::kTimedOut);
    }
    EXPECT_TRUE(work->synchronize(Clock::now() + 5s).ok());
    EXPECT_TRUE(comm.health().ok());
  });
}

TEST_P(Late, AWaitingRankSleeps) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    HostStream stream = make_stream();
    for (const StreamRef on : {StreamRef::caller(), stream.ref()}) {
      for (const Waiting& waiting : waitings()) {
        const bool large = waiting.name == "all_gather" || waiting.name == "reduce_scatter";
        if (waiting.name != "barrier" && !(large && on.is_caller())) continue;
        SCOPED_TRACE(waiting.name);
        ASSERT_TRUE(outcome(comm.barrier(on)).ok());
        if (rank.rank() == 1) {
          std::this_thread::sleep_for(500ms);
          ASSERT_TRUE(waiting.call(comm).ok());
          continue;
        }
        // The time of the thread that waits: ours, or the stream's, which also runs our two readings of its clock.
        std::chrono::nanoseconds before{}, after{};
        ASSERT_TRUE(on.enqueue([&] { before = thread_cpu_time(); }).ok());
        if (on.is_caller()) {
          ASSERT_TRUE(waiting.call(comm).ok());
        } else {
          ASSERT_TRUE(comm.barrier(on).ok());
        }
        ASSERT_TRUE(on.enqueue([&] { after = thread_cpu_time(); }).ok());
        ASSERT_TRUE(on.synchronize(Clock::now() + 5s).ok());
        EXPECT_LT(after - before, stretched(25ms)) << "of 500 ms";
      }
    }
  });
}

// The others' last completed and current operation are told apart: rank 2 is a whole operation behind.
TEST_P(Late, TheErrorSaysHowFarTheLateRankHasCome) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=300");
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    if (rank.rank() == 2) std::this_thread::sleep_for(700ms);
    const Status status = outcome(comm.barrier(StreamRef::caller(), "the sixth"));
    EXPECT_TRUE(failed_with(status, Code::kTimedOut, {"op 6", "the sixth", "rank 2 (finished op 5, started op 5)"}));
    EXPECT_EQ(status.to_string().find("rank 0 (finished"), std::string::npos) << "which had arrived";
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, Late, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

// A process that is stopped, not ended, is late.
TEST(LateProcess, AStoppedRankIsNamed) {
  run_ranks(3, RankMode::kProcesses,
            [](RankContext& rank) {
              Communicator comm = rank.communicator("timeout_ms=400");
              for (const Waiting& waiting : waitings()) {
                if (waiting.name != "split") {
                  ASSERT_TRUE(waiting.call(comm).ok());
                }
              }
              if (rank.rank() == 1) raise(SIGSTOP);
              EXPECT_TRUE(failed_with(waitings()[2].call(comm), Code::kTimedOut, {"rank 1"}));
            },
            {.doomed = {1}});
}

}  // namespace
}  // namespace shardcomm::testing
