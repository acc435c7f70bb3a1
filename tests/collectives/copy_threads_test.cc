// Several threads of a rank that share one operation: tables of many tensors cut between them, and when there are any.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/support/collectives_table.h"

namespace shardcomm::testing {
namespace {

size_t helpers() {
  size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    count += name == "shardcomm-team" ? 1 : 0;
  }
  return count;
}

// Tensors of very different sizes, several megabytes in all, from `base` to `out`, and back as sums.
void gather_and_reduce(Communicator& comm, std::byte* base, const std::vector<size_t>& counts) {
  const auto n = static_cast<size_t>(comm.size()), me = static_cast<size_t>(comm.rank());
  constexpr size_t kWidth = 4;
  size_t all = 0;
  for (const size_t count : counts) all += count;
  std::vector<std::byte> out(n * all * kWidth, std::byte{0x5a}), theirs(n * all * kWidth), expected(all * kWidth);
  std::vector<GatherItem> gathers;
  std::vector<ReduceItem> reductions;
  size_t at = 0;
  for (const size_t count : counts) {
    std::byte* in = base + n * at * kWidth;
    fill_elements(in, test_seed(), comm.rank(), n * at, n * count, DType::kF32);
    gathers.push_back({in, out.data() + n * at * kWidth, count, DType::kF32});
    reductions.push_back({in, out.data() + n * at * kWidth, count, DType::kF32, ReduceOp::kSum});
    at += count;
  }
  ASSERT_TRUE(comm.all_gather_many(gathers, StreamRef::caller()).ok());
  at = 0;
  for (const size_t count : counts) {
    for (size_t r = 0; r < n; ++r) {
      fill_elements(theirs.data(), test_seed(), static_cast<Rank>(r), n * at, count, DType::kF32);
      ASSERT_EQ(std::memcmp(out.data() + (n * at + r * count) * kWidth, theirs.data(), count * kWidth), 0) << at;
    }
    at += count;
  }
  ASSERT_TRUE(comm.reduce_scatter_many(reductions, StreamRef::caller()).ok());
  at = 0;
  for (const size_t count : counts) {
    std::vector<const std::byte*> sources;
    for (size_t r = 0; r < n; ++r) {
      std::byte* share = theirs.data() + r * count * kWidth;
      fill_elements(share, test_seed(), static_cast<Rank>(r), n * at + me * count, count, DType::kF32);
      sources.push_back(share);
    }
    reduce_elements(expected.data(), sources, count, DType::kF32, ReduceOp::kSum);
    ASSERT_EQ(first_difference(out.data() + n * at * kWidth, expected.data(), count, DType::kF32), std::nullopt) << at;
    at += count;
  }
}

class CopyThreads : public ::testing::TestWithParam<std::tuple<RankMode, const char*>> {};

TEST_P(CopyThreads, ShareTablesOfManyTensors) {
  const auto& [mode, options] = GetParam();
  run_ranks(2, mode, [&, options = options](RankContext& rank) {
    Communicator comm = rank.communicator(options);
    const bool windows = !std::string_view(options).ends_with("attach");
    for (const std::vector<size_t>& counts :
         {std::vector<size_t>(100, 9'001), {1'000'003, 1, 0, 4'095, 4'097, 300'000, 17}, {5, 700'000, 700'000}}) {
      size_t all = 0;
      for (const size_t count : counts) all += count;
      std::optional<Window> window;
      std::vector<std::byte> heap;
      if (windows) window = comm.allocate_window(2 * all * 4, "tensors").value();
      if (!windows) heap.resize(2 * all * 4);
      ASSERT_NO_FATAL_FAILURE(gather_and_reduce(comm, windows ? window->data() : heap.data(), counts));
    }
    EXPECT_GE(helpers(), 2U);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CopyThreads,
                         ::testing::Values(std::tuple(RankMode::kThreads, "copy_threads=3"),
                                           std::tuple(RankMode::kProcesses, "copy_threads=3"),
                                           std::tuple(RankMode::kProcesses, "copy_threads=5,memory_access=attach")),
                         [](const auto& info) {
                           const std::string_view options = std::get<1>(info.param);
                           return std::string(name(std::get<0>(info.param))) +
                                  (options.ends_with("attach") ? "_attached" : "_windows");
                         });

// One rank may use all cores; two ranks that part share them as before.
TEST(CopyThreads, ChildNeverUsesMoreThanItsParent) {
  run_ranks(2, RankMode::kProcesses, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    std::vector<float> in(size_t{2} << 20, 1.0F), out(in.size());
    const auto reduce = [&](Communicator& group) {
      return group.all_reduce({in.data(), out.data(), in.size(), DType::kF32}, StreamRef::caller()).ok();
    };
    ASSERT_TRUE(reduce(comm));
    const size_t of_the_whole = helpers();
    Result<std::optional<Communicator>> alone = comm.split(rank.rank(), 0);
    ASSERT_TRUE(alone.ok() && alone.value().has_value());
    ASSERT_TRUE(reduce(*alone.value()));
    EXPECT_LE(helpers(), 2 * of_the_whole);  // each communicator has its own
  });
}

// The scratch memory of an attached reduction is that of its bytes, however long pieces may be.
TEST(CopyThreads, NeedNoMemoryBeyondTheirParts) {
  run_ranks(2, RankMode::kProcesses, [](RankContext& rank) {
    Communicator comm = rank.communicator("memory_access=attach,chunk_bytes=1G,algorithm=direct,copy_threads=8");
    constexpr size_t kCount = size_t{2} << 20;
    std::vector<float> in(2 * kCount, 1.0F), out(kCount);
    const auto resident_kib = [] {
      std::ifstream status("/proc/self/status");
      for (std::string word; status >> word;) {
        size_t kib = 0;
        if (word == "VmHWM:" && status >> kib) return kib;
      }
      return size_t{0};
    };
    const size_t before = resident_kib();
    ASSERT_TRUE(comm.reduce_scatter({in.data(), out.data(), kCount, DType::kF32}, StreamRef::caller()).ok());
    EXPECT_EQ(out, std::vector<float>(kCount, 2.0F));
    if (kPatience == 1) {  // sanitizers keep memory of their own
      EXPECT_LT(resident_kib(), before + (size_t{64} << 10));
    }
  });
}

TEST(CopyThreads, HelpARankThatIsAlone) {
  run_ranks(1, RankMode::kProcesses, [](RankContext& rank) {
    Communicator comm = rank.communicator("algorithm=direct,copy_threads=3");
    std::vector<float> in(size_t{1} << 20, 2.0F), out(in.size());
    ASSERT_TRUE(comm.reduce_scatter({in.data(), out.data(), in.size(), DType::kF32}, StreamRef::caller()).ok());
    EXPECT_EQ(out, in);
    ASSERT_NO_FATAL_FAILURE(gather_and_reduce(comm, reinterpret_cast<std::byte*>(in.data()), {900'000, 0, 3}));
  });
}

}  // namespace
}  // namespace shardcomm::testing
