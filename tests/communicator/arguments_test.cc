// What a call refuses before any peer is involved. Each refusal happens on one rank only, and afterwards all ranks go
// on together, so a check that did involve a peer would show as a mismatch or a time-out.
#include <array>
#include <functional>

#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

using Bytes = std::array<std::byte, 4096>;

struct Refusal {
  std::string_view name;
  Code code;
  std::function<Result<Work>(Communicator&, std::byte* memory)> call;
};

constexpr auto kBadDType = static_cast<DType>(kDTypeCount);
constexpr auto kBadOp = static_cast<ReduceOp>(kReduceOpCount);
constexpr size_t kHuge = SIZE_MAX / 2 + 1;
const StreamRef kHere = StreamRef::caller();

// On rank 1 of 2. f32 throughout, so that [0, 64) of memory are 16 elements.
const std::vector<Refusal>& overlaps() {
  static const std::vector<Refusal> all = {
      {"gather_shard_in_other_part", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_gather({m, m, 16, DType::kF32}, kHere);
       }},
      {"gather_shard_by_one", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_gather({m + 68, m, 16, DType::kF32}, kHere);
       }},
      {"gather_shard_at_the_end", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_gather({m + 124, m, 16, DType::kF32}, kHere);
       }},
      {"scatter_into_other_part", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.reduce_scatter({m, m, 16, DType::kF32}, kHere);
       }},
      {"scatter_across_parts", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.reduce_scatter({m, m + 60, 16, DType::kF32}, kHere);
       }},
      {"all_reduce_shifted", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_reduce({m, m + 4, 16, DType::kF32}, kHere);
       }},
      {"all_reduce_shifted_back", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_reduce({m + 60, m, 16, DType::kF32}, kHere);
       }},
      {"exchange_in_place", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_to_all({m, m, 16, DType::kF32}, kHere);
       }},
      {"exchange_shifted", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_to_all({m, m + 64, 16, DType::kF32}, kHere);
       }},
      {"gather_v_wrong_place", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const size_t counts[] = {3, 5};  // rank 1's place is element 3
         return c.all_gather_v({m + 16, m, counts, DType::kF32}, kHere);
       }},
      {"scatter_v_wrong_place", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const size_t counts[] = {3, 5};
         return c.reduce_scatter_v({m, m, counts, DType::kF32}, kHere);
       }},
      {"many_gathers_one_wrong", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const GatherItem items[] = {{m + 64, m, 16, DType::kF32}, {m + 1024, m + 1024, 16, DType::kF32}};
         return c.all_gather_many(items, kHere);
       }},
      {"many_scatters_one_wrong", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const ReduceItem items[] = {{m, m + 64, 16, DType::kF32}, {m + 1024, m + 1028, 16, DType::kF32}};
         return c.reduce_scatter_many(items, kHere);
       }},
      {"gather_root_in_other_part", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.gather({.shard = m, .full = m, .count = 16, .dtype = DType::kF32, .root = 1}, kHere);
       }},
      {"scatter_root_in_other_part", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.scatter({.full = m, .shard = m, .count = 16, .dtype = DType::kF32, .root = 1}, kHere);
       }},
      {"scatter_root_across_parts", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.scatter({.full = m, .shard = m + 60, .count = 16, .dtype = DType::kF32, .root = 1}, kHere);
       }},
      {"reduce_root_shifted", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.reduce({.in = m, .out = m + 4, .count = 16, .dtype = DType::kF32, .root = 1}, kHere);
       }},
      {"exchange_v_in_place", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const size_t counts[] = {4, 4};
         return c.all_to_all_v({.in = m, .in_counts = counts, .out = m, .out_counts = counts, .dtype = DType::kF32},
                               kHere);
       }},
      {"exchange_v_last_element", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const size_t in[] = {3, 5}, out[] = {0, 1};
         return c.all_to_all_v({.in = m, .in_counts = in, .out = m + 28, .out_counts = out, .dtype = DType::kF32},
                               kHere);
       }},
      {"many_all_reduces_one_shifted", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const AllReduceItem items[] = {{.in = m, .out = m, .count = 16, .dtype = DType::kF32},
                                        {.in = m + 64, .out = m + 68, .count = 16, .dtype = DType::kF32}};
         return c.all_reduce_many(items, kHere);
       }},
  };
  return all;
}

const std::vector<Refusal>& bad_values() {
  static const std::vector<Refusal> all = {
      {"null_shard", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_gather({nullptr, m, 1, DType::kF32}, kHere);
       }},
      {"null_full", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_gather({m, nullptr, 1, DType::kF32}, kHere);
       }},
      {"null_scatter", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.reduce_scatter({m, nullptr, 1, DType::kF32}, kHere);
       }},
      {"null_in", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_reduce({nullptr, m, 1, DType::kF32}, kHere);
       }},
      {"null_both", Code::kInvalidArgument,
       [](Communicator& c, std::byte*) {
         return c.all_reduce({nullptr, nullptr, 1, DType::kF32}, kHere);
       }},
      {"null_data", Code::kInvalidArgument,
       [](Communicator& c, std::byte*) {
         return c.broadcast({nullptr, 1, DType::kF32, 0}, kHere);
       }},
      {"null_out", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_to_all({m, nullptr, 1, DType::kF32}, kHere);
       }},
      {"null_item", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const GatherItem items[] = {{m, m + 64, 4, DType::kF32}, {nullptr, m + 512, 4, DType::kF32}};
         return c.all_gather_many(items, kHere);
       }},
      {"misaligned_shard", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_gather({m + 1, m + 64, 1, DType::kBF16}, kHere);
       }},
      {"misaligned_out", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_reduce({m, m + 68, 1, DType::kF64}, kHere);
       }},
      {"misaligned_data", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.broadcast({m + 2, 1, DType::kI32, 0}, kHere);
       }},
      {"dtype_of_gather", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_gather({m, m + 64, 1, kBadDType}, kHere);
       }},
      {"dtype_of_scatter", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.reduce_scatter({m, m + 64, 1, kBadDType}, kHere);
       }},
      {"dtype_of_empty", Code::kInvalidArgument,
       [](Communicator& c, std::byte*) {
         return c.all_gather({nullptr, nullptr, 0, kBadDType}, kHere);
       }},
      {"dtype_of_broadcast", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.broadcast({m, 1, static_cast<DType>(255), 0}, kHere);
       }},
      {"dtype_of_item", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const ReduceItem items[] = {{m, m + 64, 1, kBadDType, ReduceOp::kSum}};
         return c.reduce_scatter_many(items, kHere);
       }},
      {"op", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_reduce({m, m + 64, 1, DType::kF32, kBadOp}, kHere);
       }},
      {"op_255", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.reduce_scatter({m, m + 64, 1, DType::kU8, static_cast<ReduceOp>(255)}, kHere);
       }},
      {"average_of_integers", Code::kUnsupported,
       [](Communicator& c, std::byte* m) {
         return c.all_reduce({m, m + 64, 1, DType::kI64, ReduceOp::kAverage}, kHere);
       }},
      {"average_of_no_integers", Code::kUnsupported,
       [](Communicator& c, std::byte*) {
         return c.all_reduce({nullptr, nullptr, 0, DType::kU8, ReduceOp::kAverage}, kHere);
       }},
      {"root_negative", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.broadcast({m, 1, DType::kF32, -1}, kHere);
       }},
      {"root_beyond", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.broadcast({m, 1, DType::kF32, 2}, kHere);
       }},
      {"counts_too_few", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const size_t counts[] = {1};
         return c.all_gather_v({m, m + 64, counts, DType::kF32}, kHere);
       }},
      {"counts_too_many", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const size_t counts[] = {1, 1, 1};
         return c.reduce_scatter_v({m, m + 64, counts, DType::kF32}, kHere);
       }},
      {"counts_none", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_gather_v({m, m + 64, {}, DType::kF32}, kHere);
       }},
      {"huge_gather", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_gather({m, m + 64, kHuge, DType::kU8}, kHere);
       }},
      {"huge_gather_of_wide", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_gather({m, m + 64, SIZE_MAX / 8, DType::kF64}, kHere);
       }},
      {"huge_reduce", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_reduce({m, m + 64, SIZE_MAX / 4 + 1, DType::kF32}, kHere);
       }},
      {"huge_reduce_of_bytes", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_reduce({m, m + 64, SIZE_MAX, DType::kU8}, kHere);
       }},
      {"huge_broadcast", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.broadcast({m, SIZE_MAX, DType::kF64, 0}, kHere);
       }},
      {"huge_exchange", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.all_to_all({m, m + 64, kHuge, DType::kU8}, kHere);
       }},
      {"huge_sum_of_counts", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const size_t counts[] = {kHuge, kHuge};
         return c.all_gather_v({m, m + 64, counts, DType::kU8}, kHere);
       }},
      {"huge_bytes_of_counts", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const size_t counts[] = {1, SIZE_MAX / 4};
         return c.reduce_scatter_v({m, m + 64, counts, DType::kF64}, kHere);
       }},
      {"huge_item", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const GatherItem items[] = {{m, m + 64, 1, DType::kU8}, {m + 128, m + 256, kHuge, DType::kU8}};
         return c.all_gather_many(items, kHere);
       }},
      {"null_full_at_the_root_of_a_gather", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.gather({.shard = m, .full = nullptr, .count = 1, .dtype = DType::kF32, .root = 1}, kHere);
       }},
      {"null_shard_of_a_gather", Code::kInvalidArgument,
       [](Communicator& c, std::byte*) {
         return c.gather({.shard = nullptr, .full = nullptr, .count = 1, .dtype = DType::kF32, .root = 0}, kHere);
       }},
      {"misaligned_shard_of_a_scatter", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.scatter({.full = nullptr, .shard = m + 2, .count = 1, .dtype = DType::kF32, .root = 0}, kHere);
       }},
      {"null_full_at_the_root_of_a_scatter", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.scatter({.full = nullptr, .shard = m, .count = 1, .dtype = DType::kF32, .root = 1}, kHere);
       }},
      {"null_out_at_the_root_of_a_reduction", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.reduce({.in = m, .out = nullptr, .count = 1, .dtype = DType::kF32, .root = 1}, kHere);
       }},
      {"root_of_gather", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.gather({.shard = m, .full = m + 64, .count = 1, .dtype = DType::kF32, .root = 2}, kHere);
       }},
      {"root_of_scatter", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.scatter({.full = m, .shard = m + 64, .count = 1, .dtype = DType::kF32, .root = -1}, kHere);
       }},
      {"root_of_reduction", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.reduce({.in = m, .out = m + 64, .count = 1, .dtype = DType::kF32, .root = 1 << 20}, kHere);
       }},
      {"root_of_many", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const BroadcastItem items[] = {{.data = m, .count = 1, .dtype = DType::kF32}};
         return c.broadcast_many(items, 2, kHere);
       }},
      {"negative_root_of_none", Code::kInvalidArgument,
       [](Communicator& c, std::byte*) { return c.broadcast_many({}, -1, kHere); }},
      {"null_item_of_broadcasts", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const BroadcastItem items[] = {{.data = m, .count = 1, .dtype = DType::kF32},
                                        {.data = nullptr, .count = 1, .dtype = DType::kF32}};
         return c.broadcast_many(items, 0, kHere);
       }},
      {"op_of_reduction", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.reduce({.in = m, .out = nullptr, .count = 1, .dtype = DType::kF32, .op = static_cast<ReduceOp>(99)},
                         kHere);
       }},
      {"exchange_v_in_counts_too_few", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const size_t one[] = {1}, two[] = {1, 1};
         return c.all_to_all_v(
             {.in = m, .in_counts = one, .out = m + 64, .out_counts = two, .dtype = DType::kF32}, kHere);
       }},
      {"exchange_v_no_out_counts", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const size_t two[] = {1, 1};
         return c.all_to_all_v({.in = m, .in_counts = two, .out = m + 64, .out_counts = {}, .dtype = DType::kF32},
                               kHere);
       }},
      {"exchange_v_huge_sum", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const size_t huge[] = {kHuge, kHuge}, none[] = {0, 0};
         return c.all_to_all_v({.in = m, .in_counts = none, .out = m + 64, .out_counts = huge, .dtype = DType::kU8},
                               kHere);
       }},
      {"exchange_v_null_in", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         const size_t in[] = {0, 1}, out[] = {0, 0};
         return c.all_to_all_v({.in = nullptr, .in_counts = in, .out = m, .out_counts = out, .dtype = DType::kF32},
                               kHere);
       }},
      {"huge_gather_to_the_root", Code::kInvalidArgument,
       [](Communicator& c, std::byte* m) {
         return c.gather({.shard = m, .full = m + 64, .count = kHuge, .dtype = DType::kU8, .root = 1}, kHere);
       }},
      {"cuda_stream", Code::kUnsupported,
       [](Communicator& c, std::byte* m) {
         return c.all_gather({m, m + 64, 1, DType::kU8}, StreamRef::cuda(nullptr, 0));
       }},
  };
  return all;
}

class Arguments : public ::testing::TestWithParam<RankMode> {};

void refuse(Communicator& comm, const std::vector<Refusal>& refusals) {
  alignas(64) Bytes memory{};
  const Bytes before = memory;
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.name);
    if (comm.rank() == 1) {
      EXPECT_TRUE(failed_with(refusal.call(comm, memory.data()).status(), refusal.code, {}));
    }
    EXPECT_EQ(memory, before);
    uint32_t in = 7, out[2] = {};
    const Status status = outcome(comm.all_gather({&in, out, 1, DType::kU32}, kHere));
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(out[0] + out[1], 14u);
  }
}

TEST_P(Arguments, OverlapsAreRefused) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=5000");
    refuse(comm, overlaps());
  });
}

TEST_P(Arguments, BadValuesAreRefused) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=5000");
    refuse(comm, bad_values());
  });
}

// What the rules allow at their edges.
TEST_P(Arguments, TouchingIsNotOverlapping) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=5000");
    alignas(64) Bytes memory{};
    std::byte* m = memory.data();
    const size_t one_sided[] = {0, 4};
    const std::vector<Result<Work>> results = {
        comm.all_gather({m, m + 64, 16, DType::kF32}, kHere),        // shard ends where full begins
        comm.all_gather({m + 192, m + 64, 16, DType::kF32}, kHere),  // and the other way round
        comm.all_reduce({m, m + 64, 16, DType::kF32}, kHere),
        comm.all_to_all({m, m + 128, 16, DType::kF32}, kHere),
        comm.all_gather_v({m + 512, m + 512, one_sided, DType::kF32}, kHere),  // rank 1's place is the beginning
        comm.all_gather({nullptr, nullptr, 0, DType::kF32}, kHere),
        comm.all_gather({m + 3, m + 3, 0, DType::kF64}, kHere),
        comm.reduce_scatter({nullptr, nullptr, 0, DType::kBF16}, kHere),
        comm.all_reduce({nullptr, nullptr, 0, DType::kU8}, kHere),
        comm.broadcast({nullptr, 0, DType::kU8, 1}, kHere),
        comm.all_to_all({nullptr, nullptr, 0, DType::kI64}, kHere),
        comm.all_gather_many({}, kHere),
        comm.reduce_scatter_many({}, kHere),
        comm.barrier(kHere, std::string(1000, 'l')),
        comm.gather({.shard = m, .full = m + 64, .count = 16, .dtype = DType::kF32, .root = 1}, kHere),
        comm.scatter({.full = m, .shard = m + 128, .count = 16, .dtype = DType::kF32, .root = 0}, kHere),
        comm.reduce({.in = m, .out = m + 64, .count = 16, .dtype = DType::kF32, .root = 0}, kHere),
        comm.gather({.shard = nullptr, .full = nullptr, .count = 0, .dtype = DType::kF32, .root = 1}, kHere),
        comm.scatter({.full = nullptr, .shard = nullptr, .count = 0, .dtype = DType::kF32, .root = 1}, kHere),
        comm.reduce({.in = nullptr, .out = nullptr, .count = 0, .dtype = DType::kF32, .root = 1}, kHere),
        comm.all_reduce_many({}, kHere),
        comm.broadcast_many({}, 1, kHere),
    };
    for (size_t i = 0; i < results.size(); ++i)
      EXPECT_TRUE(results[i].ok()) << i << " " << results[i].status().to_string();
    // In a ragged form a rank with nothing may pass null while the others have something.
    const Rank me = comm.rank();
    const Result<Work> nothing = comm.all_gather_v({me == 0 ? nullptr : m, m + 64, one_sided, DType::kF32}, kHere);
    EXPECT_TRUE(nothing.ok()) << nothing.status().to_string();
    const Result<Work> sums = comm.reduce_scatter_v({m + 64, me == 0 ? nullptr : m, one_sided, DType::kF32}, kHere);
    EXPECT_TRUE(sums.ok()) << sums.status().to_string();
    // So may a rank that neither gives nor takes anything; the parts touch where the other's begin.
    const size_t own[] = {me == 0 ? size_t{0} : 0, me == 0 ? size_t{0} : 4};
    const Result<Work> alone = comm.all_to_all_v({.in = me == 0 ? nullptr : m,
                                                  .in_counts = own,
                                                  .out = me == 0 ? nullptr : m + 16,
                                                  .out_counts = own,
                                                  .dtype = DType::kF32},
                                                 kHere);
    EXPECT_TRUE(alone.ok()) << alone.status().to_string();
  });
}

// Labels are compared as far as they are kept: 31 bytes.
TEST_P(Arguments, LabelsAreComparedUpToTheirLimit) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("timeout_ms=5000");
    const std::string same(31, 's');
    EXPECT_TRUE(outcome(comm.barrier(kHere, same + (rank.rank() == 0 ? "left" : "right"))).ok());
    const std::string other(30, 's');
    const Status status = outcome(comm.barrier(kHere, other + (rank.rank() == 0 ? "l" : "r")));
    EXPECT_TRUE(failed_with(status, Code::kFailedPrecondition, {"barrier", other + "l", other + "r"}));
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, Arguments, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace shardcomm::testing
