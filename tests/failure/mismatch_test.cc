// Ranks that do not make the same call: an error on every rank, which says who called what.
#include <functional>
#include <vector>

#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

constexpr int kRanks = 3;
constexpr Rank kOddRank = 1;

// Room for the largest call below.
struct Buffers {
  std::vector<std::byte> in = std::vector<std::byte>(size_t{4} << 20), out = std::vector<std::byte>(size_t{4} << 20);
};

using Call = std::function<Result<Work>(Communicator&, Buffers&, StreamRef)>;

Call gather(size_t count, DType dtype = DType::kF32, std::string_view label = {}) {
  return [=](Communicator& comm, Buffers& b, StreamRef stream) {
    return comm.all_gather({b.in.data(), b.out.data(), count, dtype, label}, stream);
  };
}
Call scatter(size_t count, ReduceOp op) {
  return [=](Communicator& comm, Buffers& b, StreamRef stream) {
    return comm.reduce_scatter({b.in.data(), b.out.data(), count, DType::kBF16, op}, stream);
  };
}
Call all_reduce(size_t count, DType dtype, ReduceOp op) {
  return [=](Communicator& comm, Buffers& b, StreamRef stream) {
    return comm.all_reduce({b.in.data(), b.out.data(), count, dtype, op}, stream);
  };
}
Call broadcast(size_t count, Rank root) {
  return [=](Communicator& comm, Buffers& b, StreamRef stream) {
    return comm.broadcast({b.in.data(), count, DType::kU8, root}, stream);
  };
}
Call all_to_all(size_t count) {
  return [=](Communicator& comm, Buffers& b, StreamRef stream) {
    return comm.all_to_all({b.in.data(), b.out.data(), count, DType::kI64}, stream);
  };
}
Call barrier(std::string_view label) {
  return [=](Communicator& comm, Buffers&, StreamRef stream) { return comm.barrier(stream, label); };
}
Call gather_v(std::vector<size_t> counts) {
  return [=](Communicator& comm, Buffers& b, StreamRef stream) {
    return comm.all_gather_v({b.in.data(), b.out.data(), counts, DType::kF32}, stream);
  };
}
Call scatter_v(std::vector<size_t> counts) {
  return [=](Communicator& comm, Buffers& b, StreamRef stream) {
    return comm.reduce_scatter_v({b.in.data(), b.out.data(), counts, DType::kF32}, stream);
  };
}
Call gather_many(std::vector<std::pair<size_t, DType>> items) {
  return [=](Communicator& comm, Buffers& b, StreamRef stream) {
    std::vector<GatherItem> given;
    size_t used = 0;
    for (const auto& [count, dtype] : items) {
      given.push_back({b.in.data() + used, b.out.data() + kRanks * used, count, dtype});
      used += count * 8;
    }
    return comm.all_gather_many(given, stream);
  };
}
Call scatter_many(std::vector<ReduceOp> ops) {
  return [=](Communicator& comm, Buffers& b, StreamRef stream) {
    std::vector<ReduceItem> given;
    for (const ReduceOp op : ops)
      given.push_back({b.in.data() + given.size() * 4096, b.out.data() + given.size() * 4096, 8, DType::kF32, op});
    return comm.reduce_scatter_many(given, stream);
  };
}

Call gather_to(size_t count, Rank root) {
  return [=](Communicator& comm, Buffers& b, StreamRef stream) {
    return comm.gather({.shard = b.in.data(), .full = b.out.data(), .count = count, .dtype = DType::kF32, .root = root},
                       stream);
  };
}
Call scatter_from(size_t count, Rank root) {
  return [=](Communicator& comm, Buffers& b, StreamRef stream) {
    return comm.scatter(
        {.full = b.in.data(), .shard = b.out.data(), .count = count, .dtype = DType::kF32, .root = root}, stream);
  };
}
Call reduce_to(size_t count, Rank root, ReduceOp op = ReduceOp::kSum) {
  return [=](Communicator& comm, Buffers& b, StreamRef stream) {
    return comm.reduce(
        {.in = b.in.data(), .out = b.out.data(), .count = count, .dtype = DType::kF32, .op = op, .root = root}, stream);
  };
}
Call exchange_v(DType dtype) {
  return [=](Communicator& comm, Buffers& b, StreamRef stream) {
    const size_t counts[kRanks] = {5, 5, 5};
    return comm.all_to_all_v(
        {.in = b.in.data(), .in_counts = counts, .out = b.out.data(), .out_counts = counts, .dtype = dtype}, stream);
  };
}
Call all_reduce_many(std::vector<size_t> counts) {
  return [=](Communicator& comm, Buffers& b, StreamRef stream) {
    std::vector<AllReduceItem> given;
    size_t used = 0;
    for (const size_t count : counts) {
      given.push_back({.in = b.in.data() + used, .out = b.out.data() + used, .count = count, .dtype = DType::kF32});
      used += count * 4;
    }
    return comm.all_reduce_many(given, stream);
  };
}
Call broadcast_many(std::vector<size_t> counts, Rank root) {
  return [=](Communicator& comm, Buffers& b, StreamRef stream) {
    std::vector<BroadcastItem> given;
    size_t used = 0;
    for (const size_t count : counts) {
      given.push_back({.data = b.in.data() + used, .count = count, .dtype = DType::kF32});
      used += count * 4;
    }
    return comm.broadcast_many(given, root, stream);
  };
}

struct Mismatch {
  std::string_view name;
  Call usual, odd;
  std::vector<std::string_view> words;  // of the error
};

const std::vector<Mismatch>& mismatches() {
  static const std::vector<Mismatch> all = {
      {"count", gather(1000), gather(1001), {"1000", "1001", "all_gather", "f32"}},
      {"count_zero", gather(0), gather(7), {"all_gather", "7"}},
      {"large_count", gather(40000), gather(40001), {"40000", "40001", "all_gather"}},
      {"small_and_large", gather(10), gather(90000), {"10", "90000", "all_gather"}},
      {"dtype", gather(64, DType::kF32), gather(64, DType::kI32), {"f32", "i32"}},
      {"dtype_and_count", gather(64, DType::kF32), gather(32, DType::kF64), {"f32 64", "f64 32"}},
      {"op", scatter(100, ReduceOp::kSum), scatter(100, ReduceOp::kMax), {"reduce_scatter", "sum", "max"}},
      {"large_op",
       all_reduce(60000, DType::kF32, ReduceOp::kSum),
       all_reduce(60000, DType::kF32, ReduceOp::kAverage),
       {"all_reduce", "sum", "average"}},
      {"collective", gather(256), all_reduce(256, DType::kF32, ReduceOp::kSum), {"all_gather", "all_reduce"}},
      {"large_collective", all_to_all(40000), scatter(90000, ReduceOp::kSum), {"all_to_all", "reduce_scatter"}},
      {"barrier_or_data", barrier(""), broadcast(1000, 0), {"barrier", "broadcast"}},
      {"root", broadcast(1000, 0), broadcast(1000, 2), {"broadcast", "root 0", "root 2"}},
      {"large_root", broadcast(300000, 1), broadcast(300000, 2), {"broadcast", "root 1", "root 2"}},
      {"label", gather(16, DType::kF32, "blocks.1"), gather(16, DType::kF32, "blocks.2"), {"blocks.1", "blocks.2"}},
      {"label_or_none", barrier("here"), barrier(""), {"barrier", "here"}},
      {"ragged", gather_v({100, 200, 300}), gather_v({100, 200, 400}), {"all_gather_v", "600", "700"}},
      {"ragged_order", gather_v({100, 200, 300}), gather_v({300, 200, 100}), {"all_gather_v", "600", "counts"}},
      {"large_ragged", scatter_v({50000, 0, 1}), scatter_v({50000, 1, 0}), {"reduce_scatter_v", "50001", "counts"}},
      {"even_or_ragged", gather(10), gather_v({10, 10, 10}), {"all_gather ", "all_gather_v"}},
      {"items",
       gather_many({{8, DType::kF32}, {8, DType::kF32}}),
       gather_many({{16, DType::kF32}}),
       {"all_gather_many", "2 items", "1 item"}},
      {"item_counts",
       gather_many({{8, DType::kF32}, {16, DType::kF32}}),
       gather_many({{16, DType::kF32}, {8, DType::kF32}}),
       {"all_gather_many", "24", "items"}},
      {"item_dtypes",
       gather_many({{8, DType::kF32}, {8, DType::kF32}}),
       gather_many({{8, DType::kF32}, {8, DType::kU32}}),
       {"all_gather_many", "items"}},
      {"item_ops",
       scatter_many({ReduceOp::kSum, ReduceOp::kMax}),
       scatter_many({ReduceOp::kSum, ReduceOp::kMin}),
       {"reduce_scatter_many", "items"}},
      {"gather_root", gather_to(100, 0), gather_to(100, 2), {"gather f32 100", "to root 0", "to root 2"}},
      {"gather_count", gather_to(100, 1), gather_to(101, 1), {"gather f32 100 to root 1", "gather f32 101"}},
      {"large_gather_root", gather_to(90000, 2), gather_to(90000, 1), {"to root 2", "to root 1"}},
      {"scatter_root", scatter_from(100, 0), scatter_from(100, 1), {"scatter f32 100", "from root 0", "from root 1"}},
      {"large_scatter_count", scatter_from(90000, 0), scatter_from(90001, 0), {"90000", "90001", "scatter"}},
      {"reduce_root", reduce_to(100, 0), reduce_to(100, 1), {"reduce f32 100 sum", "to root 0", "to root 1"}},
      {"large_reduce_op",
       reduce_to(90000, 2),
       reduce_to(90000, 2, ReduceOp::kMax),
       {"reduce f32 90000 sum to root 2", "max"}},
      {"gather_or_all_gather", gather_to(100, 0), gather(100), {"rank 1 all_gather f32 100", "gather f32 100 to root"}},
      {"exchange_v_dtype", exchange_v(DType::kF32), exchange_v(DType::kI32), {"all_to_all_v f32", "all_to_all_v i32"}},
      {"all_reduce_items",
       all_reduce_many({8, 16}),
       all_reduce_many({24}),
       {"all_reduce_many 24 in 2 items", "all_reduce_many 24 in 1 items"}},
      {"large_all_reduce_items",
       all_reduce_many({80000, 16}),
       all_reduce_many({16, 80000}),
       {"all_reduce_many 80016", "items differ"}},
      {"root_of_many",
       broadcast_many({8, 16}, 0),
       broadcast_many({8, 16}, 1),
       {"broadcast_many 24 in 2 items from root 0", "from root 1"}},
  };
  return all;
}

// That rank r, and no other, is said to have made the other call.
bool tells_ranks_apart(const Status& status) {
  const std::string text = status.to_string();
  return text.find("ranks 0,2 ") != std::string::npos && text.find("rank 1 ") != std::string::npos;
}

class Mismatched : public ::testing::TestWithParam<std::tuple<RankMode, bool>> {};

TEST_P(Mismatched, IsAnErrorOnEveryRank) {
  const auto& [mode, asynchronous] = GetParam();
  run_ranks(kRanks, mode, [asynchronous = asynchronous](RankContext& rank) {
    // One store, and a communicator over it for each mismatch.
    Result<std::unique_ptr<Store>> store = open_store(rank.next_store_uri());
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    Result<Options> options = Options::parse("timeout_ms=8000,init_timeout_ms=8000");
    HostStream stream = make_stream();
    Buffers buffers;
    for (const Mismatch& mismatch : mismatches()) {
      SCOPED_TRACE(mismatch.name);
      Result<Communicator> comm =
          Communicator::create(**store, {.rank = rank.rank(), .size = rank.size(), .device = {}}, *options);
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      const StreamRef on = asynchronous ? stream.ref() : StreamRef::caller();
      // A few operations in agreement first: the error is about the right one.
      ASSERT_TRUE(outcome(mismatch.usual(*comm, buffers, on)).ok());
      ASSERT_TRUE(outcome(comm->barrier(on)).ok());
      const Stopwatch watch;
      const Status status = outcome((rank.rank() == kOddRank ? mismatch.odd : mismatch.usual)(*comm, buffers, on));
      EXPECT_LT(watch.elapsed(), stretched(1500ms));
      EXPECT_TRUE(failed_with(status, Code::kFailedPrecondition, mismatch.words));
      EXPECT_TRUE(failed_with(status, Code::kFailedPrecondition, {"op 3"}));
      EXPECT_TRUE(tells_ranks_apart(status)) << status.to_string();
      // And it stays failed.
      EXPECT_TRUE(failed_with(comm->health(), Code::kFailedPrecondition, mismatch.words));
      EXPECT_TRUE(failed_with(outcome(mismatch.usual(*comm, buffers, on)), Code::kFailedPrecondition, {}));
    }
  });
}

// What two ranks exchange must be equal at both; all ranks are told of the same pair. The ranks that agree with
// everybody hear of it, too, whether bytes travel with the counts (5) or are read in place (50000).
TEST_P(Mismatched, CountsOfAPairAreAnErrorOnEveryRank) {
  const auto& [mode, asynchronous] = GetParam();
  run_ranks(kRanks, mode, [asynchronous = asynchronous](RankContext& rank) {
    HostStream stream = make_stream();
    Buffers buffers;
    const StreamRef on = asynchronous ? stream.ref() : StreamRef::caller();
    for (const size_t count : {size_t{5}, size_t{50000}}) {
      for (const bool of_giver : {true, false}) {
        Communicator comm = rank.communicator("timeout_ms=8000");
        std::vector<size_t> in_counts(kRanks, count), out_counts(kRanks, count);
        if (rank.rank() == 2 && of_giver) in_counts[1] = count + 3;
        if (rank.rank() == 1 && !of_giver) out_counts[2] = count + 3;
        const Stopwatch watch;
        const Status status = outcome(comm.all_to_all_v({.in = buffers.in.data(),
                                                         .in_counts = in_counts,
                                                         .out = buffers.out.data(),
                                                         .out_counts = out_counts,
                                                         .dtype = DType::kF32},
                                                        on));
        EXPECT_LT(watch.elapsed(), stretched(1500ms));
        const std::string few = std::to_string(count), many = std::to_string(count + 3);
        const std::string text =
            "rank 2 gives " + (of_giver ? many : few) + " elements to rank 1, which expects " + (of_giver ? few : many);
        EXPECT_TRUE(failed_with(status, Code::kFailedPrecondition, {"op 1 all_to_all_v f32", text}));
        EXPECT_TRUE(failed_with(comm.health(), Code::kFailedPrecondition, {text}));
      }
    }
  });
}

// Two calls that fit each other, in another order on one rank.
TEST_P(Mismatched, OrderIsAnErrorOnEveryRank) {
  const auto& [mode, asynchronous] = GetParam();
  run_ranks(kRanks, mode, [asynchronous = asynchronous](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=8000");
    HostStream stream = make_stream();
    Buffers buffers;
    const StreamRef on = asynchronous ? stream.ref() : StreamRef::caller();
    const Call first = gather(11, DType::kF32, "attention"), second = gather(11, DType::kF32, "feed forward");
    Result<Work> one = (rank.rank() == kOddRank ? second : first)(comm, buffers, on);
    Result<Work> two = (rank.rank() == kOddRank ? first : second)(comm, buffers, on);
    for (const Status& status : {outcome(one), outcome(two)})
      EXPECT_TRUE(failed_with(status, Code::kFailedPrecondition, {"op 1", "attention", "feed forward"}));
  });
}

// Calls that have no stream.
class MismatchedCallers : public ::testing::TestWithParam<RankMode> {};

TEST_P(MismatchedCallers, CollectiveCallsBesideOperationsAreCompared) {
  run_ranks(kRanks, GetParam(), [](RankContext& rank) {
    Result<std::unique_ptr<Store>> store = open_store(rank.next_store_uri());
    ASSERT_TRUE(store.ok());
    Result<Options> options = Options::parse("timeout_ms=8000,init_timeout_ms=8000");
    const bool odd = rank.rank() == kOddRank;
    std::vector<std::byte> memory(4096);
    const std::vector<std::pair<std::string, std::function<Status(Communicator&)>>> calls = {
        {"window and barrier",
         [&](Communicator& comm) {
           return odd ? outcome(comm.barrier(StreamRef::caller())) : comm.allocate_window(4096, "weights").status();
         }},
        {"labels of windows",
         [&](Communicator& comm) { return comm.allocate_window(4096, odd ? "gradients" : "weights").status(); }},
        {"window and registration",
         [&](Communicator& comm) {
           return odd ? comm.register_window(memory.data(), memory.size(), "weights").status()
                      : comm.allocate_window(4096, "weights").status();
         }},
        {"split and window",
         [&](Communicator& comm) { return odd ? comm.split(0, 0).status() : comm.allocate_window(1, "x").status(); }},
        {"split and gather",
         [&](Communicator& comm) {
           Buffers buffers;
           return odd ? comm.split(0, 0).status() : outcome(gather(5)(comm, buffers, StreamRef::caller()));
         }},
    };
    for (const auto& [what, call] : calls) {
      SCOPED_TRACE(what);
      Result<Communicator> comm =
          Communicator::create(**store, {.rank = rank.rank(), .size = rank.size(), .device = {}}, *options);
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      const Stopwatch watch;
      const Status status = call(*comm);
      EXPECT_LT(watch.elapsed(), stretched(1500ms));
      EXPECT_TRUE(failed_with(status, Code::kFailedPrecondition, {"ranks 0,2", "rank 1"}));
      EXPECT_TRUE(failed_with(comm->health(), Code::kFailedPrecondition, {}));
    }
  });
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<RankMode, bool>>& info) {
  return std::string(name(std::get<0>(info.param))) + (std::get<1>(info.param) ? "_asynchronous" : "_synchronous");
}

INSTANTIATE_TEST_SUITE_P(Modes, Mismatched, ::testing::Combine(::testing::ValuesIn(rank_modes()), ::testing::Bool()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Modes, MismatchedCallers, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace shardcomm::testing
