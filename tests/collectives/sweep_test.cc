// The long versions: every small count with every dtype at every offset, more than 2^31 bytes, 10^6 tiny operations.
// Label "slow".
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/collectives_table.h"
#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

constexpr std::chrono::minutes kPatience{30};

struct Place {
  RankMode mode;
  Memory memory;
  int ranks;
};

void PrintTo(const Place& place, std::ostream* out) {
  *out << name(place.mode) << ' ' << place.memory.name << ' ' << place.ranks;
}

class Sweep : public ::testing::TestWithParam<Place> {};

TEST_P(Sweep, IsExactForEveryCountUpToAFewThousand) {
  const Place& place = GetParam();
  const Reference reference = make_reference(test_seed(), place.ranks, 4097);
  run_ranks(
      place.ranks, place.mode,
      [&](RankContext& rank) {
        Communicator comm = rank.communicator(place.memory.options);
        HostStream stream = make_stream();
        for (size_t first = 0; first < 4098; first += 16) {
          TableSpan span;
          span.counts.clear();
          for (size_t count = first; count < std::min<size_t>(first + 16, 4098); ++count) span.counts.push_back(count);
          span.beyond_inline = false;
          const size_t turn = first / 16;
          span.dtypes = {static_cast<DType>(turn % kDTypeCount), static_cast<DType>((turn * 5 + 3) % kDTypeCount)};
          CollectiveTable table(comm, place.memory, reference, span);
          table.run(turn % 2 == 0 ? StreamRef::caller() : stream.ref());
        }
      },
      {.deadline = kPatience});
}

// A mebibyte of the widest elements: many chunks, pieces and pages of every other.
class Mebibyte : public ::testing::TestWithParam<Place> {};

TEST_P(Mebibyte, IsExact) {
  const Place& place = GetParam();
  constexpr size_t kCount = (1 << 20) / sizeof(double);
  const Reference reference = make_reference(test_seed(), place.ranks, kCount);
  run_ranks(place.ranks, place.mode,
            [&](RankContext& rank) {
              Communicator comm = rank.communicator(place.memory.options);
              CollectiveTable table(comm, place.memory, reference,
                                    {.counts = {kCount}, .beyond_inline = false, .most_items = 7});
              table.run(StreamRef::caller());
            },
            {.deadline = kPatience});
}

TEST_P(Sweep, IsExactForEveryDTypeAroundTheLargestMessage) {
  const Place& place = GetParam();
  const Reference reference = make_reference(test_seed(), place.ranks, 9000);
  run_ranks(place.ranks, place.mode,
            [&](RankContext& rank) {
              Communicator comm = rank.communicator(place.memory.options);
              CollectiveTable table(comm, place.memory, reference, {.counts = {2, 63, 64, 65, 511, 8191, 8192, 9000}});
              for (int round = 0; round < 4; ++round) table.run(StreamRef::caller());
            },
            {.deadline = kPatience});
}

// Buffers between guards in one stretch of memory, which is poisoned anew for every operation.
class Guarded {
 public:
  static constexpr size_t kGuardBytes = 64;
  explicit Guarded(size_t most_bytes) : memory_(most_bytes + 2 * kGuardBytes + 128) {}
  std::byte* place(size_t bytes, size_t offset_bytes) {
    const auto base = (reinterpret_cast<uintptr_t>(memory_.data()) + 63) / 64 * 64;
    begin_ = reinterpret_cast<std::byte*>(base) + kGuardBytes + offset_bytes;
    bytes_ = bytes;
    std::memset(begin_ - kGuardBytes, 0xa5, bytes + 2 * kGuardBytes);
    return begin_;
  }
  bool intact() const {
    const auto is_poison = [](std::byte b) { return b == std::byte{0xa5}; };
    return std::all_of(begin_ - kGuardBytes, begin_, is_poison) &&
           std::all_of(begin_ + bytes_, begin_ + bytes_ + kGuardBytes, is_poison);
  }

 private:
  std::vector<std::byte> memory_;
  std::byte* begin_ = nullptr;
  size_t bytes_ = 0;
};

// One all_gather and one reduce_scatter, into other offsets than they come from.
void gather_and_scatter(Communicator& comm, const Reference& reference, Guarded& in, Guarded& out, DType dtype,
                        size_t count, size_t offset_bytes) {
  const auto n = static_cast<size_t>(comm.size()), me = static_cast<size_t>(comm.rank());
  const size_t size = size_of(dtype), bytes = count * size;
  const size_t other = (offset_bytes * 7 + 3 * size) % 16;
  std::byte* shard = in.place(bytes, offset_bytes);
  std::memcpy(shard, reference.input(dtype, comm.rank()), bytes);
  std::byte* full = out.place(n * bytes, other);
  ASSERT_TRUE(comm.all_gather({shard, full, count, dtype}, StreamRef::caller()).ok());
  for (size_t r = 0; r < n; ++r)
    ASSERT_EQ(std::memcmp(full + r * bytes, reference.input(dtype, static_cast<Rank>(r)), bytes), 0);
  ASSERT_TRUE(out.intact() && in.intact());
  ASSERT_EQ(std::memcmp(shard, reference.input(dtype, comm.rank()), bytes), 0);

  std::byte* whole = in.place(n * bytes, other);
  std::memcpy(whole, reference.input(dtype, comm.rank()), n * bytes);
  std::byte* sum = out.place(bytes, offset_bytes);
  ASSERT_TRUE(comm.reduce_scatter({whole, sum, count, dtype}, StreamRef::caller()).ok());
  ASSERT_EQ(first_difference(sum, reference.reduced(dtype, ReduceOp::kSum, me * count), count, dtype), std::nullopt);
  ASSERT_TRUE(out.intact() && in.intact());
  ASSERT_EQ(std::memcmp(whole, reference.input(dtype, comm.rank()), n * bytes), 0);
}

// Minutes on each, so on few ranks.
class SmallSweep : public Sweep {};

TEST_P(SmallSweep, IsExactForEveryCountDTypeAndOffset) {
  const Place& place = GetParam();
  const Reference reference = make_reference(test_seed(), place.ranks, 4097);
  run_ranks(place.ranks, place.mode,
            [&](RankContext& rank) {
              Communicator comm = rank.communicator(place.memory.options);
              Guarded in(static_cast<size_t>(place.ranks) * 4097 * 8), out(static_cast<size_t>(place.ranks) * 4097 * 8);
              for (int d = 0; d < kDTypeCount; ++d) {
                const auto dtype = static_cast<DType>(d);
                for (size_t count = 0; count < 4098; ++count) {
                  for (size_t offset = 0; offset < 16; offset += size_of(dtype)) {
                    gather_and_scatter(comm, reference, in, out, dtype, count, offset);
                    if (::testing::Test::HasFailure()) {
                      FAIL() << name(dtype) << " count " << count << " offset " << offset << " seed " << test_seed();
                    }
                  }
                }
              }
            },
            {.deadline = kPatience});
}

std::string name_of(const ::testing::TestParamInfo<Place>& info) {
  return std::string(name(info.param.mode)) + "_" + std::string(info.param.memory.name) + "_" +
         std::to_string(info.param.ranks);
}

const auto small_places =
    ::testing::Values(Place{RankMode::kThreads, kAttachedMemory, 3}, Place{RankMode::kProcesses, kWindowMemory, 2},
                      Place{RankMode::kProcesses, kAttachedMemory, 3});
INSTANTIATE_TEST_SUITE_P(Places, SmallSweep, small_places, name_of);
INSTANTIATE_TEST_SUITE_P(Places, Sweep, small_places, name_of);
INSTANTIATE_TEST_SUITE_P(LargerPlaces, Sweep,
                         ::testing::Values(Place{RankMode::kProcesses, kSmallPieces, 5},
                                           Place{RankMode::kProcesses, kSmallRing, 4},
                                           Place{RankMode::kProcesses, kMixedMemory, 7}),
                         name_of);

std::vector<Place> mebibyte_places() {
  std::vector<Place> places;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    places.push_back({RankMode::kThreads, kAttachedMemory, ranks});
    for (const Memory& memory : {kWindowMemory, kAttachedMemory, kStagedMemory, kMixedMemory})
      places.push_back({RankMode::kProcesses, memory, ranks});
  }
  return places;
}
INSTANTIATE_TEST_SUITE_P(Places, Mebibyte, ::testing::ValuesIn(mebibyte_places()), name_of);

// Byte i of a rank's shard: cheap enough to check all of them.
std::byte pattern(uint64_t rank, size_t i) {
  return static_cast<std::byte>((i * 0x9e3779b97f4a7c15 >> 40) + 31 * rank);
}

class Huge : public ::testing::TestWithParam<Memory> {};

TEST_P(Huge, MovesMoreThanTwoGibibytes) {
  constexpr size_t kShard = (size_t{1} << 31) + 8;
  if (std::filesystem::exists("/proc/meminfo")) {
    std::ifstream file("/proc/meminfo");
    std::string word;
    size_t kib = 0;
    while (file >> word && word != "MemAvailable:") {
    }
    file >> kib;
    if (kib < size_t{13} << 20) GTEST_SKIP() << "needs 13 GiB of memory, " << (kib >> 20) << " are available";
  }
  const Memory& memory = GetParam();
  run_ranks(2, RankMode::kProcesses,
            [&](RankContext& rank) {
              Communicator comm = rank.communicator(memory.options);
              std::optional<Window> window;
              std::unique_ptr<std::byte[]> heap;
              if (memory.even_ranks_use_window) {
                Result<Window> made = comm.allocate_window(2 * kShard, "huge");
                ASSERT_TRUE(made.ok()) << made.status().to_string();
                window = std::move(made).value();
              } else {
                heap.reset(new std::byte[2 * kShard]);
              }
              std::byte* full = window ? window->data() : heap.get();
              const auto me = static_cast<uint64_t>(rank.rank());
              std::byte* shard = full + me * kShard;
              for (size_t i = 0; i < kShard; ++i) shard[i] = pattern(me, i);
              const Result<Work> work = comm.all_gather({shard, full, kShard, DType::kU8}, StreamRef::caller());
              ASSERT_TRUE(work.ok()) << work.status().to_string();
              const std::byte* theirs = full + (1 - me) * kShard;
              size_t wrong = 0;
              for (size_t i = 0; i < kShard; ++i) wrong += theirs[i] != pattern(1 - me, i);
              EXPECT_EQ(wrong, 0u);
              // And back: each rank's part of the sum of two equal wholes.
              const Result<Work> sum =
                  comm.reduce_scatter({full, shard, kShard, DType::kU8, ReduceOp::kMax}, StreamRef::caller());
              ASSERT_TRUE(sum.ok()) << sum.status().to_string();
              for (size_t i = 0; i < kShard; ++i) wrong += shard[i] != pattern(me, i);
              EXPECT_EQ(wrong, 0u);
              EXPECT_EQ(comm.traffic().bytes_received, 2 * kShard);
            },
            {.deadline = kPatience});
}

INSTANTIATE_TEST_SUITE_P(Memories, Huge, ::testing::Values(kWindowMemory, kAttachedMemory, kStagedMemory),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(LongStress, TinyOperationsAreExactOnEachNumberOfRanks) {
  for (const RankMode mode : rank_modes()) {
    for (const int ranks : {2, 3, 4, 8}) {
      SCOPED_TRACE(std::to_string(ranks) + " " + std::string(name(mode)));
      const uint32_t operations = ranks == 2 ? 1'000'000 : 100'000;
      run_ranks(ranks, mode,
                [&](RankContext& rank) {
                  Communicator comm = rank.communicator();
                  std::vector<uint32_t> full(static_cast<size_t>(ranks));
                  for (uint32_t i = 0; i < operations; ++i) {
                    const uint32_t mine = i * 16 + static_cast<uint32_t>(rank.rank());
                    ASSERT_TRUE(comm.all_gather({&mine, full.data(), 1, DType::kU32}, StreamRef::caller()).ok());
                    for (uint32_t r = 0; r < full.size(); ++r) ASSERT_EQ(full[r], i * 16 + r);
                    if (i % 4 == 0) {
                      ASSERT_TRUE(comm.barrier(StreamRef::caller()).ok());
                    }
                  }
                },
                {.deadline = kPatience});
    }
  }
}

}  // namespace
}  // namespace shardcomm::testing
