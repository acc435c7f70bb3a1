// The same inputs give the same bits, whatever carries them: memory kinds, piece and ring sizes, groupings, kinds of
// rank, streams. NaN payloads included, which the matrix does not compare. And large operations, which it leaves out.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "tests/support/collectives_table.h"

namespace shardcomm::testing {
namespace {

using namespace std::chrono_literals;

constexpr int kRanks = 3;
constexpr size_t kCount = 40'003;  // a shard

uint64_t hash_of(std::span<const std::byte> bytes) {
  uint64_t hash = 0;
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min<size_t>(8, bytes.size() - i));
    hash = random_bits(hash, word);
  }
  return hash;
}

Status done(const Result<Work>& work) {
  return work.ok() ? work.value().synchronize(std::chrono::steady_clock::now() + 30s) : work.status();
}

// Buffers of one dtype: the whole of all ranks in, the shard or the whole out.
struct Buffers {
  std::byte* in;
  std::byte* out;
  size_t bytes;
};

// The bits that a rank gets for one dtype and op, by every way of asking for the same sums.
uint64_t reduced_hash(Communicator& comm, const Buffers& b, DType dtype, ReduceOp op, size_t pieces) {
  const size_t size = size_of(dtype), n = static_cast<size_t>(comm.size());
  if (pieces == 1) {
    EXPECT_TRUE(done(comm.reduce_scatter({b.in, b.out, kCount, dtype, op}, StreamRef::caller())).ok());
    return hash_of({b.out, kCount * size});
  }
  // Pieces of the shard, as items of their own: item p is [n, count_p], gathered from the same places.
  std::vector<ReduceItem> items;
  std::vector<std::vector<std::byte>> cut;
  size_t begin = 0;
  for (size_t p = 0; p < pieces; ++p) {
    const size_t count = p + 1 == pieces ? kCount - begin : (kCount / pieces + p * 7) % (kCount - begin);
    auto& piece = cut.emplace_back(n * count * size + 8);
    for (size_t r = 0; r < n; ++r)
      std::memcpy(piece.data() + r * count * size, b.in + (r * kCount + begin) * size, count * size);
    items.push_back({piece.data(), b.out + begin * size, count, dtype, op});
    begin += count;
  }
  EXPECT_TRUE(done(comm.reduce_scatter_many(items, StreamRef::caller())).ok());
  return hash_of({b.out, kCount * size});
}

std::string rank_bits(RankContext& rank, const Memory& memory, uint64_t seed, size_t pieces) {
  Communicator comm = rank.communicator(memory.options);
  std::string text;
  const size_t most = kRanks * kCount * 16 + 64;  // of the largest elements
  std::optional<Window> window;
  std::vector<std::byte> heap(2 * most);
  if (memory.even_ranks_use_window) window = comm.allocate_window(2 * most, "w").value();
  std::byte* base = window ? window->data() : heap.data();
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    const Buffers b{base + 8, base + most + 8, most};
    fill_elements(b.in, seed, comm.rank(), 0, kRanks * kCount, dtype);
    for (int op = 0; op < kReduceOpCount; ++op) {
      if (!supports(dtype, static_cast<ReduceOp>(op))) continue;
      text += std::to_string(reduced_hash(comm, b, dtype, static_cast<ReduceOp>(op), pieces)) + " ";
    }
    const AllReduceArgs all{b.in, b.out, kRanks * kCount, dtype};
    EXPECT_TRUE(done(comm.all_reduce(all, StreamRef::caller())).ok());
    text += "all " + std::to_string(hash_of({b.out, kRanks * kCount * size_of(dtype)})) + "\n";
  }
  return text;
}

TEST(Bits, DoNotDependOnHowTheyTravel) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  struct Way {
    RankMode mode;
    Memory memory;
    size_t pieces;
  };
  const Memory huge_pieces{"huge_pieces", "memory_access=attach,chunk_bytes=1M", false, false};
  const Memory odd_ring{"odd_ring", "memory_access=staging,staging_bytes=70000,spin_us=0", false, false};
  const Way ways[] = {
      {RankMode::kThreads, kAttachedMemory, 1},   {RankMode::kThreads, kAttachedMemory, 5},
      {RankMode::kProcesses, kWindowMemory, 1},   {RankMode::kProcesses, kAttachedMemory, 1},
      {RankMode::kProcesses, kAttachedMemory, 3}, {RankMode::kProcesses, kSmallPieces, 1},
      {RankMode::kProcesses, huge_pieces, 1},     {RankMode::kProcesses, kStagedMemory, 9},
      {RankMode::kProcesses, kSmallRing, 1},      {RankMode::kProcesses, odd_ring, 64},
  };
  std::vector<std::string> first;
  for (const Way& way : ways) {
    SCOPED_TRACE(std::string(name(way.mode)) + " " + std::string(way.memory.name) + " in " +
                 std::to_string(way.pieces));
    const RankReport report = run_ranks(
        kRanks, way.mode, [&](RankContext& rank) { rank.publish(rank_bits(rank, way.memory, seed, way.pieces)); });
    ASSERT_TRUE(report.ok());
    if (first.empty()) first = report.published;
    EXPECT_EQ(report.published, first);
  }
}

// all_reduce is reduce_scatter and all_gather: every rank has the same bits, and those of reduce_scatter.
TEST(Bits, AreEqualForAllReduceAndReduceScatter) {
  run_ranks(4, RankMode::kProcesses, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    for (const size_t count : {size_t{5}, size_t{300}, size_t{70'001}}) {
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E5M2}) {
        const size_t size = size_of(dtype);
        std::vector<std::byte> in(4 * count * size), all(in.size()), shard(count * size), full(in.size());
        fill_elements(in.data(), test_seed(), rank.rank(), 0, 4 * count, dtype);
        ASSERT_TRUE(done(comm.all_reduce({in.data(), all.data(), 4 * count, dtype}, StreamRef::caller())).ok());
        ASSERT_TRUE(done(comm.reduce_scatter({in.data(), shard.data(), count, dtype}, StreamRef::caller())).ok());
        ASSERT_TRUE(done(comm.all_gather({shard.data(), full.data(), count, dtype}, StreamRef::caller())).ok());
        EXPECT_EQ(hash_of(all), hash_of(full)) << name(dtype) << " " << count;
      }
    }
  });
}

// A mebi of elements a shard: [n, kLarge] and back.
void run_large(RankContext& rank, const Memory& memory, DType dtype) {
  constexpr size_t kLarge = size_t{1} << 20;
  Communicator comm = rank.communicator(memory.options);
  const auto n = static_cast<size_t>(comm.size()), me = static_cast<size_t>(rank.rank());
  const size_t bytes = kLarge * size_of(dtype), whole = n * bytes;
  std::optional<Window> window;
  std::vector<std::byte> heap;
  if (memory.even_ranks_use_window) window = comm.allocate_window(2 * whole, "large").value();
  if (!window) heap.resize(2 * whole);
  std::byte* in = window ? window->data() : heap.data();
  std::byte* out = in + whole;
  fill_elements(in, test_seed(), rank.rank(), 0, n * kLarge, dtype);
  // This rank's share of every input, and the sum of those.
  std::vector<std::byte> theirs(whole), expected(bytes);
  std::vector<const std::byte*> sources;
  for (size_t r = 0; r < n; ++r) {
    sources.push_back(theirs.data() + r * bytes);
    fill_elements(theirs.data() + r * bytes, test_seed(), static_cast<Rank>(r), me * kLarge, kLarge, dtype);
  }
  reduce_elements(expected.data(), sources, kLarge, dtype, ReduceOp::kSum);
  ASSERT_TRUE(done(comm.reduce_scatter({in, out, kLarge, dtype}, StreamRef::caller())).ok());
  EXPECT_EQ(first_difference(out, expected.data(), kLarge, dtype), std::nullopt);
  std::memset(out, 0xa5, whole);
  ASSERT_TRUE(done(comm.all_to_all({in, out, kLarge, dtype}, StreamRef::caller())).ok());
  EXPECT_EQ(std::memcmp(out, theirs.data(), whole), 0);
  ASSERT_TRUE(done(comm.all_gather({in + me * bytes, out, kLarge, dtype}, StreamRef::caller())).ok());
  EXPECT_EQ(std::memcmp(out + me * bytes, theirs.data() + me * bytes, bytes), 0);
  ASSERT_TRUE(done(comm.all_reduce({in, in, n * kLarge, dtype}, StreamRef::caller())).ok());
  EXPECT_EQ(first_difference(in + me * bytes, expected.data(), kLarge, dtype), std::nullopt);
  rank.publish(std::to_string(hash_of({out, whole})) + " " + std::to_string(hash_of({in, whole})));
}

TEST(Bits, AreExactForLargeOperations) {
  struct Large {
    Memory memory;
    int ranks;
    DType dtype;
  };
  for (const Large& large : {Large{kWindowMemory, 4, DType::kBF16}, Large{kAttachedMemory, 2, DType::kF32},
                             Large{kSmallRing, 2, DType::kF32}, Large{kThreeCopyThreads, 4, DType::kBF16},
                             Large{kAttachedByThree, 2, DType::kF32}}) {
    SCOPED_TRACE(std::string(large.memory.name) + ", seed " + std::to_string(test_seed()));
    const RankReport report = run_ranks(large.ranks, RankMode::kProcesses,
                                        [&](RankContext& rank) { run_large(rank, large.memory, large.dtype); });
    // Every rank ends with the same whole, from all_gather and from all_reduce.
    for (const std::string& hashes : report.published) EXPECT_EQ(hashes, report.published.front());
  }
}

// The same of what is reduced for all, cut where the share of the next rank begins, and of what the root has.
TEST(Bits, AreExactForThousandsOfWholeTensors) {
  for (const auto& [mode, memory] : {std::pair{RankMode::kThreads, kAttachedMemory},
                                     {RankMode::kProcesses, kWindowMemory},
                                     {RankMode::kProcesses, kAttachedMemory},
                                     {RankMode::kProcesses, kSmallRing}}) {
    SCOPED_TRACE(std::string(name(mode)) + " " + std::string(memory.name));
    run_ranks(3, mode, [memory = memory](RankContext& rank) {
      Communicator comm = rank.communicator(memory.options);
      constexpr size_t kItems = 9'001, kEach = 23;
      std::vector<std::byte> in(kItems * kEach * 4), out(in.size());
      Result<Window> window = comm.allocate_window(in.size(), "items");
      ASSERT_TRUE(window.ok()) << window.status().to_string();
      std::byte* const from = memory.even_ranks_use_window ? window->data() : in.data();
      std::vector<std::vector<std::byte>> inputs(3, in);
      std::vector<const std::byte*> sources;
      for (Rank r = 0; r < 3; ++r) {
        std::byte* const input = inputs[static_cast<size_t>(r)].data();
        fill_elements(input, test_seed(), r, 0, kItems * kEach, DType::kF32);
        sources.push_back(input);
      }
      std::memcpy(from, sources[static_cast<size_t>(rank.rank())], in.size());
      std::vector<AllReduceItem> reductions;
      std::vector<BroadcastItem> broadcasts;
      for (size_t i = 0; i < kItems; ++i) {
        const size_t at = i * kEach * 4, count = i % 7 == 0 ? 0 : kEach;
        reductions.push_back({.in = from + at, .out = out.data() + at, .count = count, .dtype = DType::kF32});
        broadcasts.push_back({.data = from + at, .count = count, .dtype = DType::kF32});
      }
      ASSERT_TRUE(done(comm.all_reduce_many(reductions, StreamRef::caller())).ok());
      std::vector<std::byte> expected(in.size());
      reduce_elements(expected.data(), sources, kItems * kEach, DType::kF32, ReduceOp::kSum);
      for (size_t i = 0; i < kItems; ++i) {
        const size_t at = i * kEach * 4;
        ASSERT_EQ(first_difference(out.data() + at, expected.data() + at, reductions[i].count, DType::kF32),
                  std::nullopt)
            << i;
      }
      ASSERT_TRUE(done(comm.broadcast_many(broadcasts, 2, StreamRef::caller())).ok());
      for (size_t i = 0; i < kItems; ++i) {
        const size_t at = i * kEach * 4;
        ASSERT_EQ(std::memcmp(from + at, sources[2] + at, broadcasts[i].count * 4), 0) << i;
      }
    });
  }
}

// More items than one message can describe, so that the operation is cut into several announcements, and than one table
// of a kernel holds. In mixed memory the items of odd ranks lie in a window and out of it by turns.
TEST(Bits, AreExactForThousandsOfItems) {
  struct Way {
    RankMode mode;
    Memory memory;
  };
  for (const Way& way : {Way{RankMode::kThreads, kAttachedMemory}, Way{RankMode::kProcesses, kWindowMemory},
                         Way{RankMode::kProcesses, kAttachedMemory}, Way{RankMode::kProcesses, kMixedAttached},
                         Way{RankMode::kProcesses, kSmallRing}}) {
    const Memory& memory = way.memory;
    SCOPED_TRACE(std::string(name(way.mode)) + " " + std::string(memory.name));
    run_ranks(2, way.mode, [&](RankContext& rank) {
      Communicator comm = rank.communicator(memory.options);
      constexpr size_t kItems = 9'001, kEach = 23;
      std::vector<std::byte> in(kItems * kEach * 2 * 4), out(in.size());
      const auto me = static_cast<size_t>(rank.rank());
      std::vector<GatherItem> gathers;
      std::vector<ReduceItem> reduces;
      fill_elements(in.data(), test_seed(), rank.rank(), 0, kItems * kEach * 2, DType::kF32);
      Result<Window> window = comm.allocate_window(in.size(), "items");
      ASSERT_TRUE(window.ok()) << window.status().to_string();
      std::copy(in.begin(), in.end(), window->data());
      const bool in_window = me == 0 ? memory.even_ranks_use_window : memory.odd_ranks_use_window;
      const bool by_turns = memory.even_ranks_use_window != memory.odd_ranks_use_window;
      for (size_t i = 0; i < kItems; ++i) {
        const size_t at = i * kEach * 2 * 4;
        const std::byte* from = (in_window && (!by_turns || i % 3 != 0) ? window->data() : in.data()) + at;
        gathers.push_back({from, out.data() + at, i % 7 == 0 ? 0 : kEach, DType::kF32});
        reduces.push_back({from, out.data() + at, i % 5 == 0 ? 0 : kEach, DType::kF32, ReduceOp::kSum});
      }
      ASSERT_TRUE(done(comm.all_gather_many(gathers, StreamRef::caller())).ok());
      std::vector<std::byte> peer(in.size()), expected(kEach * 4);
      fill_elements(peer.data(), test_seed(), 1 - rank.rank(), 0, kItems * kEach * 2, DType::kF32);
      for (size_t i = 0; i < kItems; ++i) {
        const size_t at = i * kEach * 2 * 4, bytes = gathers[i].count * 4;
        ASSERT_EQ(std::memcmp(out.data() + at + me * bytes, in.data() + at, bytes), 0) << i;
        ASSERT_EQ(std::memcmp(out.data() + at + (1 - me) * bytes, peer.data() + at, bytes), 0) << i;
      }
      ASSERT_TRUE(done(comm.reduce_scatter_many(reduces, StreamRef::caller())).ok());
      for (size_t i = 0; i < kItems; ++i) {
        const size_t at = i * kEach * 2 * 4, mine = at + me * kEach * 4;
        if (reduces[i].count == 0) continue;
        const std::byte* sources[2] = {(me == 0 ? in : peer).data() + mine, (me == 0 ? peer : in).data() + mine};
        reduce_elements(expected.data(), sources, kEach, DType::kF32, ReduceOp::kSum);
        ASSERT_EQ(first_difference(out.data() + at, expected.data(), kEach, DType::kF32), std::nullopt) << i;
      }
    });
  }
}

}  // namespace
}  // namespace shardcomm::testing
