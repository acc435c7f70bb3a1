// Several threads of a rank on one communicator: their calls take it one after the other, in an order that all ranks
// share, and a stream runs its operations in that order whoever put them there.
#include <algorithm>
#include <array>
#include <deque>
#include <mutex>

#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

// Runs body(0) … body(count − 1), each on a thread of its own.
template <class Body>
void on_threads(int count, Body&& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

// Lets threads through in the order of numbers: what a user of several threads does to agree on an order.
class Sequence {
 public:
  void await(int number) const {
    for (int seen = 0; (seen = next_.load()) != number;) next_.wait(seen);
  }
  void pass() {
    next_.fetch_add(1);
    next_.notify_all();
  }

 private:
  std::atomic<int> next_{0};
};

class OrderOfCalls : public ::testing::TestWithParam<RankMode> {};

// Each call differs from its neighbours and is made by one of three threads, on its caller stream, on its own stream or
// on a stream of the communicator that all threads share.
TEST_P(OrderOfCalls, ThreeOnTwoCommunicatorsInAnAgreedOrderAreExact) {
  constexpr int kThreads = 3, kComms = 2, kCalls = 240;
  run_ranks(3, GetParam(), [&](RankContext& rank) {
    std::deque<Communicator> comms;
    for (int c = 0; c < kComms; ++c) comms.push_back(rank.communicator());
    const HostStream shared[kComms] = {make_stream(), make_stream()};
    std::vector<Sequence> orders(kComms);
    on_threads(kThreads, [&](int thread) {
      const HostStream own = make_stream();
      struct Pending {
        Work work;
        int64_t in, out, expected;
      };
      std::deque<Pending> pending;
      for (int number = 0; number < kCalls; ++number) {
        for (size_t c = 0; c < kComms; ++c) {
          if ((number * 7 + static_cast<int>(c)) % kThreads != thread) continue;
          const int size = rank.size();
          Pending& entry = pending.emplace_back(
              Pending{{}, number * 10 + rank.rank(), 0, size * number * 10 + size * (size - 1) / 2});
          const StreamRef streams[] = {StreamRef::caller(), own.ref(), shared[c].ref()};
          orders[c].await(number);
          const std::string label = "call " + std::to_string(number);
          Result<Work> work = comms[c].all_reduce({&entry.in, &entry.out, 1, DType::kI64, ReduceOp::kSum, label},
                                                  streams[static_cast<size_t>(number / 2) % 3]);
          orders[c].pass();
          ASSERT_TRUE(work.ok()) << work.status().to_string();
          entry.work = work.value();
        }
      }
      for (const Pending& entry : pending) {
        const Status status = entry.work.synchronize(Clock::now() + 60s);
        ASSERT_TRUE(status.ok()) << status.to_string();
        EXPECT_EQ(entry.out, entry.expected);
      }
    });
    for (const Communicator& comm : comms) EXPECT_EQ(comm.traffic().operations, static_cast<uint64_t>(kCalls));
  });
}

// Calls that are equal may meet in any order, so no thread waits for another before it calls.
TEST_P(OrderOfCalls, EqualCallsNeedNoOrder) {
  constexpr int kThreads = 4, kCalls = 150;
  run_ranks(2, GetParam(), [&](RankContext& rank) {
    Communicator comm = rank.communicator();
    const HostStream shared = make_stream();
    std::mutex mutex;
    std::vector<uint64_t> epochs;
    on_threads(kThreads, [&](int thread) {
      const HostStream own = make_stream();
      const StreamRef streams[] = {StreamRef::caller(), own.ref(), shared.ref(), shared.ref()};
      const int32_t in = rank.rank() + 1;
      std::vector<std::array<int32_t, 2>> out(kCalls);
      std::vector<Work> works;
      for (std::array<int32_t, 2>& full : out) {
        Result<Work> work = comm.all_gather({&in, full.data(), 1, DType::kI32}, streams[static_cast<size_t>(thread)]);
        ASSERT_TRUE(work.ok()) << work.status().to_string();
        works.push_back(work.value());
      }
      for (const Work& work : works) {
        const Status status = work.synchronize(Clock::now() + 60s);
        ASSERT_TRUE(status.ok()) << status.to_string();
      }
      for (const std::array<int32_t, 2>& full : out) EXPECT_EQ(full, (std::array<int32_t, 2>{1, 2}));
      const std::lock_guard lock(mutex);
      for (const Work& work : works) epochs.push_back(work.epoch());
    });
    std::ranges::sort(epochs);
    ASSERT_EQ(epochs.size(), size_t{kThreads * kCalls});
    for (size_t i = 0; i < epochs.size(); ++i) EXPECT_EQ(epochs[i], i + 1);
    EXPECT_EQ(comm.traffic().operations, uint64_t{kThreads * kCalls});
  });
}

// Rank 1 comes late, so that rank 0's second thread calls while the first is between the exchanges of its allocation.
TEST_P(OrderOfCalls, NoCallComesBetweenTheStepsOfAnAllocation) {
  run_ranks(2, GetParam(), [&](RankContext& rank) {
    Communicator comm = rank.communicator();
    if (rank.rank() == 1) std::this_thread::sleep_for(200ms);
    std::thread other([&] {
      std::this_thread::sleep_for(100ms);
      const Status status = outcome(comm.barrier(StreamRef::caller(), "behind the window"));
      EXPECT_TRUE(status.ok()) << status.to_string();
    });
    Result<Window> window = comm.allocate_window(4096, "shared by threads");
    EXPECT_TRUE(window.ok()) << window.status().to_string();
    other.join();
  });
}

TEST_P(OrderOfCalls, OrdersThatDifferFailAndNameTheCalls) {
  run_ranks(2, GetParam(), [&](RankContext& rank) {
    Communicator comm = rank.communicator();
    const HostStream streams[] = {make_stream(), make_stream()};
    int32_t in[2] = {}, out[4] = {};
    Status failures[2];
    Sequence order;
    on_threads(2, [&](int thread) {
      // Thread 0 is first on rank 0 and second on rank 1.
      order.await(thread == rank.rank() ? 0 : 1);
      const StreamRef stream = streams[thread].ref();
      Result<Work> work = thread == 0
                              ? comm.all_gather({in, out, 1, DType::kI32, "activations"}, stream)
                              : comm.all_reduce({in + 1, out + 2, 1, DType::kI32, ReduceOp::kSum, "losses"}, stream);
      order.pass();
      failures[thread] = outcome(work);
    });
    for (const Status& failure : failures) {
      EXPECT_TRUE(failed_with(failure, Code::kFailedPrecondition,
                              {"all_gather", "'activations'", "all_reduce", "'losses'", "rank 0", "rank 1"}));
    }
  });
}

// Threads in a random order of their own: whatever meets, every call ends, and none of them hangs or mixes up bytes.
TEST_P(OrderOfCalls, RandomOrdersEndWithAnErrorOrRightBytes) {
  for (int round = 0; round < 10; ++round) {
    run_ranks(2, GetParam(), [&](RankContext& rank) {
      Communicator comm = rank.communicator("timeout_ms=5000");
      on_threads(3, [&](int thread) {
        const std::string label = "thread " + std::to_string(thread);
        for (int call = 0; call < 20; ++call) {
          const int32_t in = thread * 100 + call;
          int32_t out[2] = {-1, -1};
          const Status status = outcome(comm.all_gather({&in, out, 1, DType::kI32, label}, StreamRef::caller()));
          if (!status.ok()) {
            EXPECT_TRUE(failed_with(status, Code::kFailedPrecondition, {"thread ", "rank 0", "rank 1"}));
            return;
          }
          EXPECT_EQ(out[0], in);
          EXPECT_EQ(out[1], in);
        }
      });
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, OrderOfCalls, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace shardcomm::testing
