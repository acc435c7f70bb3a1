// Timeouts of single operations and set_timeout: each rank's own, beside that of the options.
#include <functional>

#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

using std::chrono::milliseconds;
using Call = std::function<Result<Work>(Communicator&, milliseconds)>;

struct Form {
  std::string_view name;
  Call call;
};

struct Buffers {
  std::vector<float> in = std::vector<float>(64), out = std::vector<float>(64);
};

// Every call that takes a timeout, on two ranks.
std::vector<Form> forms(Buffers& b, StreamRef stream) {
  float *in = b.in.data(), *out = b.out.data();
  constexpr DType kF32 = DType::kF32;
  static constexpr size_t kCounts[] = {2, 2};
  return {
      {"all_gather",
       [=](Communicator& c, milliseconds t) {
         return c.all_gather({.shard = in, .full = out, .count = 2, .dtype = kF32, .timeout = t}, stream);
       }},
      {"reduce_scatter",
       [=](Communicator& c, milliseconds t) {
         return c.reduce_scatter({.full = in, .shard = out, .count = 2, .dtype = kF32, .timeout = t}, stream);
       }},
      {"all_reduce",
       [=](Communicator& c, milliseconds t) {
         return c.all_reduce({.in = in, .out = out, .count = 2, .dtype = kF32, .timeout = t}, stream);
       }},
      {"broadcast",
       [=](Communicator& c, milliseconds t) {
         return c.broadcast({.data = in, .count = 2, .dtype = kF32, .timeout = t}, stream);
       }},
      {"all_to_all",
       [=](Communicator& c, milliseconds t) {
         return c.all_to_all({.in = in, .out = out, .count_per_rank = 2, .dtype = kF32, .timeout = t}, stream);
       }},
      {"gather",
       [=](Communicator& c, milliseconds t) {
         return c.gather({.shard = in, .full = out, .count = 2, .dtype = kF32, .timeout = t}, stream);
       }},
      {"scatter",
       [=](Communicator& c, milliseconds t) {
         return c.scatter({.full = in, .shard = out, .count = 2, .dtype = kF32, .timeout = t}, stream);
       }},
      {"reduce",
       [=](Communicator& c, milliseconds t) {
         return c.reduce({.in = in, .out = out, .count = 2, .dtype = kF32, .timeout = t}, stream);
       }},
      {"all_to_all_v",
       [=](Communicator& c, milliseconds t) {
         return c.all_to_all_v(
             {.in = in, .in_counts = kCounts, .out = out, .out_counts = kCounts, .dtype = kF32, .timeout = t}, stream);
       }},
      {"barrier", [=](Communicator& c, milliseconds t) { return c.barrier(stream, {}, t); }},
      {"all_gather_v",
       [=](Communicator& c, milliseconds t) {
         return c.all_gather_v({.shard = in, .full = out, .counts = kCounts, .dtype = kF32, .timeout = t}, stream);
       }},
      {"reduce_scatter_v",
       [=](Communicator& c, milliseconds t) {
         return c.reduce_scatter_v({.full = in, .shard = out, .counts = kCounts, .dtype = kF32, .timeout = t}, stream);
       }},
      {"all_gather_many",
       [=](Communicator& c, milliseconds t) {
         const GatherItem items[] = {{in, out, 2, kF32}, {in + 4, out + 4, 2, kF32}};
         return c.all_gather_many(items, stream, {}, t);
       }},
      {"reduce_scatter_many",
       [=](Communicator& c, milliseconds t) {
         const ReduceItem items[] = {{in, out, 2, kF32}, {in + 4, out + 4, 2, kF32}};
         return c.reduce_scatter_many(items, stream, {}, t);
       }},
      {"all_reduce_many",
       [=](Communicator& c, milliseconds t) {
         const AllReduceItem items[] = {{.in = in, .out = out, .count = 2, .dtype = kF32}};
         return c.all_reduce_many(items, stream, {}, t);
       }},
      {"broadcast_many",
       [=](Communicator& c, milliseconds t) {
         const BroadcastItem items[] = {{.data = in, .count = 2, .dtype = kF32}};
         return c.broadcast_many(items, 0, stream, {}, t);
       }},
  };
}

class Timeout : public ::testing::TestWithParam<RankMode> {};

// Only rank 0 is impatient, and it fails for both.
TEST_P(Timeout, OfOneCallEndsItOnEveryRank) {
  Buffers unused;
  for (const bool is_asynchronous : {false, true}) {
    for (size_t form = 0; form < forms(unused, StreamRef::caller()).size(); ++form) {
      run_ranks(2, GetParam(), [&](RankContext& rank) {
        Communicator comm = rank.communicator("timeout_ms=20000");
        const HostStream stream = make_stream();
        Buffers b;
        const Form tested = forms(b, is_asynchronous ? stream.ref() : StreamRef::caller())[form];
        SCOPED_TRACE(tested.name);
        if (rank.rank() == 1) std::this_thread::sleep_for(stretched(300ms));
        const Stopwatch watch;
        const Status status = outcome(tested.call(comm, rank.rank() == 0 ? 60ms : 0ms));
        EXPECT_TRUE(failed_with(status, Code::kTimedOut, {tested.name, "rank 1"}));
        EXPECT_LT(watch.elapsed(), stretched(300ms));
        EXPECT_GE(watch.elapsed(), rank.rank() == 0 ? 60ms : 0ms);
      });
    }
  }
}

TEST_P(Timeout, OfOneCallMayBeLongerThanTheCommunicators) {
  run_ranks(2, GetParam(), [&](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=100");
    if (rank.rank() == 1) std::this_thread::sleep_for(400ms);
    for (const milliseconds patience : {milliseconds(20'000), milliseconds::max()}) {
      const Status status = outcome(comm.barrier(StreamRef::caller(), {}, patience));
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
  });
}

TEST_P(Timeout, NegativeIsRefusedAndHarmsNothing) {
  run_ranks(2, GetParam(), [&](RankContext& rank) {
    Communicator comm = rank.communicator();
    Buffers b;
    const HostStream stream = make_stream();
    for (const StreamRef where : {StreamRef::caller(), stream.ref()}) {
      for (const Form& form : forms(b, where)) {
        const Result<Work> work = form.call(comm, -1ms);
        EXPECT_TRUE(failed_with(work.status(), Code::kInvalidArgument, {"-1 ms"})) << form.name;
      }
    }
    float value = 0;
    const Rank peer = 1 - rank.rank();
    const SendArgs sends[] = {{.data = &value, .count = 1, .dtype = DType::kF32, .peer = peer, .timeout = 5ms},
                              {.data = &value, .count = 1, .dtype = DType::kF32, .peer = peer, .timeout = -5ms}};
    EXPECT_TRUE(failed_with(comm.send(sends[1], StreamRef::caller()).status(), Code::kInvalidArgument, {"-5 ms"}));
    EXPECT_TRUE(
        failed_with(comm.send_recv_many(sends, {}, StreamRef::caller()).status(), Code::kInvalidArgument, {"-5 ms"}));
    EXPECT_TRUE(failed_with(comm.set_timeout(-7ms), Code::kInvalidArgument, {"-7 ms"}));
    EXPECT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
  });
}

TEST_P(Timeout, SetTimeoutHoldsForLaterOperations) {
  enum { kBarrier, kStream, kPrepared, kWindow, kRecv, kWays };
  for (int way = 0; way < kWays; ++way) {
    run_ranks(2, GetParam(), [&](RankContext& rank) {
      Communicator comm = rank.communicator("timeout_ms=20000");
      const HostStream stream = make_stream();
      float in = 0, out[2] = {};
      const GatherItem item{&in, out, 1, DType::kF32};
      Result<PreparedCall> prepared = comm.prepare_gather({&item, 1});
      ASSERT_TRUE(prepared.ok());
      ASSERT_TRUE(comm.set_timeout(60ms).ok());
      if (rank.rank() == 1) {
        ASSERT_TRUE(comm.set_timeout(0ms).ok());  // that of the options again
        std::this_thread::sleep_for(stretched(300ms));
      }
      const auto call = [&]() -> Status {
        switch (way) {
          case kBarrier: return outcome(comm.barrier(StreamRef::caller()));
          case kStream: return outcome(comm.barrier(stream.ref()));
          case kPrepared: return outcome(prepared->run(StreamRef::caller()));
          case kWindow: return comm.allocate_window(64, "w").status();
          default: {
            const Rank peer = 1 - rank.rank();
            return outcome(comm.recv({&in, 1, DType::kF32, peer}, StreamRef::caller()));
          }
        }
      };
      const Stopwatch watch;
      EXPECT_TRUE(failed_with(call(), Code::kTimedOut, {}));
      EXPECT_LT(watch.elapsed(), stretched(300ms));
    });
  }
}

// What is in a stream already keeps the limit that it had when it was called.
TEST_P(Timeout, SetTimeoutDoesNotReachEarlierCalls) {
  run_ranks(2, GetParam(), [&](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=20000");
    const HostStream stream = make_stream();
    if (rank.rank() == 1) std::this_thread::sleep_for(300ms);
    const Result<Work> work = comm.barrier(stream.ref());
    ASSERT_TRUE(comm.set_timeout(50ms).ok());
    const Status status = outcome(work, 20s);
    EXPECT_TRUE(status.ok()) << status.to_string();
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, Timeout, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace shardcomm::testing
