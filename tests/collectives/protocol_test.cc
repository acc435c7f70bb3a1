// The order of memory in each protocol, for ThreadSanitizer: ranks are threads, so that it sees both sides, and every
// buffer is written by its owner as soon as the protocol says it may be. A release, an acquire or a wait too few is a
// data race here, also where the processor forgives it. Values are checked as well.
#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

constexpr int kRanks = 3;
constexpr size_t kSmall = 5, kLarge = 30'000;  // elements: within a message, and beyond the largest

struct Protocol {
  std::string_view name;
  size_t count;
  const char* options;
  bool asynchronous;
};

void PrintTo(const Protocol& protocol, std::ostream* out) { *out << protocol.name; }

// Buffers that their owner rewrites around every operation.
struct Buffers {
  explicit Buffers(size_t count) : in(kRanks * count), out(kRanks * count) {}
  void fill(uint32_t value) {
    std::fill(in.begin(), in.end(), value);
    std::fill(out.begin(), out.end(), 0xdeadu);
  }
  // Reads all of it, as a user would.
  uint32_t sum() const {
    uint32_t total = 0;
    for (const uint32_t value : out) total += value;
    return total;
  }
  std::vector<uint32_t> in, out;
};

class MemoryOrder : public ::testing::TestWithParam<Protocol> {};

TEST_P(MemoryOrder, EveryBufferIsItsOwnersAgain) {
  const Protocol& protocol = GetParam();
  run_ranks(kRanks, RankMode::kThreads, [&](RankContext& rank) {
    Communicator comm = rank.communicator(protocol.options);
    HostStream stream = make_stream();
    const StreamRef on = protocol.asynchronous ? stream.ref() : StreamRef::caller();
    const size_t count = protocol.count;
    Buffers b(count);
    const auto n = static_cast<uint32_t>(count);
    const auto done = [&](const Result<Work>& work) {
      const Status status = outcome(work);
      if (!status.ok()) throw std::runtime_error(status.to_string());
    };
    const auto me = static_cast<uint32_t>(rank.rank());
    for (uint32_t i = 0; i < (count == kSmall ? 150u : 30u); ++i) {
      // Ranks out of step, in turn.
      if (i % 16 == me) std::this_thread::sleep_for(std::chrono::microseconds(300));
      b.fill(i + me);
      done(comm.all_gather({b.in.data(), b.out.data(), count, DType::kU32}, on));
      ASSERT_EQ(b.sum(), n * (3 * i + 3));
      b.fill(i + me);
      done(comm.reduce_scatter({b.in.data(), b.out.data(), count, DType::kU32}, on));
      ASSERT_EQ(b.out[count - 1], 3 * i + 3);
      b.fill(i + me);
      done(comm.all_reduce({b.in.data(), b.out.data(), kRanks * count, DType::kU32}, on));
      ASSERT_EQ(b.sum(), 3 * n * (3 * i + 3));
      b.fill(i + me);
      done(comm.all_reduce({b.in.data(), b.in.data(), kRanks * count, DType::kU32}, on));
      ASSERT_EQ(b.in[count], 3 * i + 3);
      b.fill(i + me);
      done(comm.broadcast({b.in.data(), count, DType::kU32, static_cast<Rank>(i % kRanks)}, on));
      ASSERT_EQ(b.in[count - 1], i + i % kRanks);
      b.fill(i + me);
      done(comm.all_to_all({b.in.data(), b.out.data(), count, DType::kU32}, on));
      ASSERT_EQ(b.sum(), n * (3 * i + 3));
      b.fill(i + me);
      const GatherItem items[] = {{b.in.data(), b.out.data(), 2, DType::kU32},
                                  {b.in.data() + 6, b.out.data() + 6, count - 2, DType::kU32}};
      done(comm.all_gather_many(items, on));
      ASSERT_EQ(b.sum(), n * (3 * i + 3));
      if (i % 4 == 0) done(comm.barrier(on));
    }
  });
}

// A root is the only one who is read, or reads: who waits for whom differs from rank to rank.
TEST_P(MemoryOrder, EveryBufferOfARootedCallIsItsOwnersAgain) {
  const Protocol& protocol = GetParam();
  run_ranks(kRanks, RankMode::kThreads, [&](RankContext& rank) {
    Communicator comm = rank.communicator(protocol.options);
    HostStream stream = make_stream();
    const StreamRef on = protocol.asynchronous ? stream.ref() : StreamRef::caller();
    const size_t count = protocol.count;
    Buffers b(count);
    const auto n = static_cast<uint32_t>(count);
    const auto done = [&](const Result<Work>& work) {
      const Status status = outcome(work);
      if (!status.ok()) throw std::runtime_error(status.to_string());
    };
    const auto me = static_cast<uint32_t>(rank.rank());
    for (uint32_t i = 0; i < (count == kSmall ? 150u : 30u); ++i) {
      if (i % 16 == me) std::this_thread::sleep_for(std::chrono::microseconds(300));
      const auto root = static_cast<Rank>(i % kRanks);
      const bool is_root = rank.rank() == root;
      b.fill(i + me);
      done(comm.gather({.shard = b.in.data(), .full = b.out.data(), .count = count, .dtype = DType::kU32, .root = root},
                       on));
      if (is_root) {
        ASSERT_EQ(b.sum(), n * (3 * i + 3));
      }
      b.fill(i + me);
      done(comm.scatter(
          {.full = b.in.data(), .shard = b.out.data(), .count = count, .dtype = DType::kU32, .root = root}, on));
      ASSERT_EQ(b.out[count - 1], i + i % kRanks);
      b.fill(i + me);
      done(comm.reduce({.in = b.in.data(), .out = b.out.data(), .count = count, .dtype = DType::kU32, .root = root},
                       on));
      if (is_root) {
        ASSERT_EQ(b.out[count - 1], 3 * i + 3);
      }
      b.fill(i + me);
      // Rank r gives `count` elements to rank r + 1 and a few to itself, and nothing to rank r + 2.
      std::vector<size_t> in_counts(kRanks, 0), out_counts(kRanks, 0);
      in_counts[me] = out_counts[me] = 2;
      in_counts[(me + 1) % kRanks] = out_counts[(me + 2) % kRanks] = count;
      done(comm.all_to_all_v({.in = b.in.data(),
                              .in_counts = in_counts,
                              .out = b.out.data(),
                              .out_counts = out_counts,
                              .dtype = DType::kU32},
                             on));
      const uint32_t before = (me + 2) % kRanks;  // whose elements come here
      ASSERT_EQ(b.out[before < me ? 0 : count + 1], i + before);
      ASSERT_EQ(b.out[before < me ? count : 0], i + me);
      b.fill(i + me);
      const AllReduceItem sums[] = {{.in = b.in.data(), .out = b.in.data(), .count = 2, .dtype = DType::kU32},
                                    {.in = b.in.data() + 2, .out = b.out.data(), .count = count, .dtype = DType::kU32}};
      done(comm.all_reduce_many(sums, on));
      ASSERT_EQ(b.in[1], 3 * i + 3);
      ASSERT_EQ(b.out[count - 1], 3 * i + 3);
      b.fill(i + me);
      const BroadcastItem items[] = {{.data = b.in.data(), .count = 2, .dtype = DType::kU32},
                                     {.data = b.in.data() + 2, .count = count, .dtype = DType::kU32}};
      done(comm.broadcast_many(items, root, on));
      ASSERT_EQ(b.in[count + 1], i + i % kRanks);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Protocols, MemoryOrder,
                         ::testing::Values(Protocol{"small", kSmall, "", false},
                                           Protocol{"small_asleep", kSmall, "spin_us=0", false},
                                           Protocol{"small_asynchronous", kSmall, "", true},
                                           Protocol{"large", kLarge, "", false},
                                           Protocol{"large_asleep", kLarge, "spin_us=0", false},
                                           Protocol{"large_asynchronous", kLarge, "", true}),
                         [](const auto& info) { return std::string(info.param.name); });

// An operation on one stream hands over to the next one on another, and both to the caller's thread.
TEST(MemoryOrderOfStreams, FollowsTheCalls) {
  run_ranks(kRanks, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    HostStream first = make_stream(), second = make_stream();
    const StreamRef streams[] = {first.ref(), second.ref(), StreamRef::caller()};
    uint32_t value = 1;
    for (size_t i = 0; i < 150; ++i) {
      const Result<Work> work =
          comm.all_reduce({&value, &value, 1, DType::kU32, ReduceOp::kMax}, streams[i * i % 7 % 3]);
      ASSERT_TRUE(work.ok());
      if (i % 10 != 9) continue;
      ASSERT_TRUE(outcome(work).ok());
      ASSERT_EQ(value, i / 10 + 1);
      ++value;
    }
  });
}

// Windows and splits exchange blobs through the same messages as operations.
TEST(MemoryOrderOfExchanges, HoldsBetweenOperations) {
  run_ranks(kRanks, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator("spin_us=0");
    for (uint32_t i = 0; i < 10; ++i) {
      Result<Window> window = comm.allocate_window(4096 + i, "w");
      ASSERT_TRUE(window.ok()) << window.status().to_string();
      std::optional<Communicator> child = comm.split(rank.rank() % 2, 0).value();
      auto* shared = reinterpret_cast<uint32_t*>(window->data());
      *shared = i + static_cast<uint32_t>(rank.rank());
      uint32_t all[kRanks];
      ASSERT_TRUE(outcome(comm.all_gather({shared, all, 1, DType::kU32}, StreamRef::caller())).ok());
      ASSERT_EQ(all[0] + all[1] + all[2], 3 * i + 3);
      *shared = 0;
      ASSERT_TRUE(outcome(child->barrier(StreamRef::caller())).ok());
      ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    }
  });
}

}  // namespace
}  // namespace shardcomm::testing
