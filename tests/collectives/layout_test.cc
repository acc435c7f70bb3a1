// Many tensors in windows, which lie alike on all ranks, or nearly: ranks of one layout find each other's bytes by
// their own addresses, so a layout that differs in one place must be noticed, wherever that place is.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/collectives_table.h"

namespace shardcomm::testing {
namespace {

constexpr size_t kItems = 40, kMost = 130;  // tensors, and the elements of the largest shard
constexpr size_t kSlotBytes = 3 * kMost * 4 + 192;

size_t count_of(size_t item) { return item % 11 == 3 ? 0 : 1 + item * 37 % kMost; }

enum class Layout {
  kAlike,
  kAllInPlace,
  kInPlaceOnOneRank,
  kOneInPlaceOnOneRank,
  kOneInPlaceWhereOthersLieApart,
  kOneShifted,
  kLastShifted,
  kOneInTheOtherWindow,
  kTwoSwapped,
  kOneInOrdinaryMemory,
};
constexpr std::pair<Layout, const char*> kLayouts[] = {
    {Layout::kAlike, "alike"},
    {Layout::kAllInPlace, "all in place"},
    {Layout::kInPlaceOnOneRank, "in place on one rank"},
    {Layout::kOneInPlaceOnOneRank, "one in place on one rank"},
    {Layout::kOneInPlaceWhereOthersLieApart, "one in place on one rank, where the others' lies apart"},
    {Layout::kOneShifted, "one shifted on one rank"},
    {Layout::kLastShifted, "the last shifted on one rank"},
    {Layout::kOneInTheOtherWindow, "one in the other window on one rank"},
    {Layout::kTwoSwapped, "two swapped on one rank"},
    {Layout::kOneInOrdinaryMemory, "one in ordinary memory on one rank"},
};

// Where rank 1 differs from the others.
bool in_place(Layout layout, Rank rank, size_t item) {
  return layout == Layout::kAllInPlace || (rank == 1 && layout == Layout::kInPlaceOnOneRank) ||
         (rank == 1 && item == 20 &&
          (layout == Layout::kOneInPlaceOnOneRank || layout == Layout::kOneInPlaceWhereOthersLieApart));
}

class Memories {
 public:
  explicit Memories(Communicator& comm)
      : first_(comm.allocate_window(2 * kItems * kSlotBytes, "first").value()),
        second_(comm.allocate_window(2 * kItems * kSlotBytes, "second").value()),
        heap_(kItems * kSlotBytes) {}

  std::byte* input(Layout layout, Rank rank, size_t item) {
    std::byte* base = first_.data();
    size_t slot = item, shift = 0;
    if (rank == 1) {
      if (item == 17 && layout == Layout::kOneShifted) shift = 64;
      if (item == kItems - 1 && layout == Layout::kLastShifted) shift = 4;
      if (item == 5 && layout == Layout::kOneInTheOtherWindow) base = second_.data();
      if (item == 5 && layout == Layout::kOneInOrdinaryMemory) base = heap_.data();
      if ((item == 21 || item == 22) && layout == Layout::kTwoSwapped) slot = 43 - item;
    }
    return base + slot * kSlotBytes + shift;
  }
  std::byte* output(Layout layout, Rank rank, size_t item) {
    if (rank == 1 && item == 20 && layout == Layout::kOneInPlaceWhereOthersLieApart)
      return first_.data() + item * kSlotBytes - count_of(item) * 4;  // so that rank 1's part is where the inputs are
    return first_.data() + (kItems + item) * kSlotBytes;
  }
  void clear() {
    std::memset(first_.data(), 0x5a, 2 * kItems * kSlotBytes);
    std::memset(second_.data(), 0x5a, 2 * kItems * kSlotBytes);
  }

 private:
  Window first_, second_;
  std::vector<std::byte> heap_;
};

void gather(Communicator& comm, Memories& memories, Layout layout) {
  const Rank me = comm.rank();
  memories.clear();
  std::vector<GatherItem> items;
  for (size_t i = 0; i < kItems; ++i) {
    const size_t count = count_of(i);
    std::byte* full = memories.output(layout, me, i);
    std::byte* shard =
        in_place(layout, me, i) ? full + static_cast<size_t>(me) * count * 4 : memories.input(layout, me, i);
    fill_elements(shard, test_seed(), me, i * 1000, count, DType::kF32);
    items.push_back({shard, full, count, DType::kF32});
  }
  ASSERT_TRUE(comm.all_gather_many(items, StreamRef::caller()).ok());
  std::vector<std::byte> expected(kMost * 4);
  for (size_t i = 0; i < kItems; ++i) {
    const size_t bytes = count_of(i) * 4;
    for (Rank r = 0; r < comm.size(); ++r) {
      fill_elements(expected.data(), test_seed(), r, i * 1000, count_of(i), DType::kF32);
      ASSERT_EQ(std::memcmp(memories.output(layout, me, i) + static_cast<size_t>(r) * bytes, expected.data(), bytes), 0)
          << "item " << i << " of rank " << r;
    }
  }
}

void reduce(Communicator& comm, Memories& memories, Layout layout) {
  const Rank me = comm.rank();
  const auto n = static_cast<size_t>(comm.size());
  memories.clear();
  std::vector<ReduceItem> items;
  for (size_t i = 0; i < kItems; ++i) {
    std::byte* full = memories.input(layout, me, i);
    fill_elements(full, test_seed(), me, i * 1000, n * count_of(i), DType::kF32);
    items.push_back({full, memories.output(layout, me, i), count_of(i), DType::kF32, ReduceOp::kSum});
  }
  ASSERT_TRUE(comm.reduce_scatter_many(items, StreamRef::caller()).ok());
  std::vector<std::byte> theirs(n * kMost * 4), expected(kMost * 4);
  for (size_t i = 0; i < kItems; ++i) {
    const size_t count = count_of(i);
    std::vector<const std::byte*> sources;
    for (size_t r = 0; r < n; ++r) {
      sources.push_back(theirs.data() + r * kMost * 4);
      fill_elements(theirs.data() + r * kMost * 4, test_seed(), static_cast<Rank>(r),
                    i * 1000 + static_cast<size_t>(me) * count, count, DType::kF32);
    }
    reduce_elements(expected.data(), sources, count, DType::kF32, ReduceOp::kSum);
    ASSERT_EQ(first_difference(memories.output(layout, me, i), expected.data(), count, DType::kF32), std::nullopt)
        << "item " << i;
  }
}

class Layouts : public ::testing::TestWithParam<RankMode> {};

TEST_P(Layouts, MayDifferBetweenRanks) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("algorithm=direct");
    Memories memories(comm);
    for (int round = 0; round < 2; ++round) {
      for (const auto& [layout, text] : kLayouts) {
        SCOPED_TRACE(text);
        ASSERT_NO_FATAL_FAILURE(gather(comm, memories, layout));
        ASSERT_NO_FATAL_FAILURE(reduce(comm, memories, layout));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Layouts, ::testing::Values(RankMode::kThreads, RankMode::kProcesses),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace shardcomm::testing
