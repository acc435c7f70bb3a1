// Who takes what from whom, as arithmetic: the routes of every pattern against the definition of its collective.
#include <gtest/gtest.h>

#include <vector>

#include "collectives/geometry.h"
#include "collectives/transfer_cursor.h"

namespace shardcomm {
namespace {

constexpr int kRanks = 5;
constexpr Rank kRoot = 3;
constexpr size_t kCount = 6;
const std::vector<size_t> kCounts = {4, 0, 7, 1, 3};

struct Case {
  const char* name;
  Geometry geometry;
  std::vector<size_t> shares;  // elements, by rank
};

std::vector<Case> cases(Pattern pattern) {
  return {{"even", Geometry(pattern, kRanks), std::vector<size_t>(kRanks, kCount)},
          {"ragged", Geometry(pattern, kRanks, kCounts), kCounts},
          {"divided", Geometry::divided(pattern, kRanks, 20, 8), {8, 8, 4, 0, 0}}};
}

// The buffers are offsets from null; nothing is read or written.
Item item_of(size_t count) { return {.in = nullptr, .out = nullptr, .count = count, .dtype = DType::kI32, .op = {}}; }
size_t target_element(const Route& route, const Item& item) {
  return static_cast<size_t>(route.target(item) - item.out) / size_of(item.dtype);
}

TEST(Geometry, GatherTakesAllOfEveryShard) {
  for (const Case& test : cases(Pattern::kGather)) {
    SCOPED_TRACE(test.name);
    const Item item = item_of(kCount);
    size_t begin = 0;
    for (Rank source = 0; source < kRanks; ++source) {
      const size_t share = test.shares[static_cast<size_t>(source)];
      const Route route = test.geometry.route(source, 1);
      EXPECT_EQ(route.source_bytes(item), share * 4);
      EXPECT_EQ(route.source_offset_bytes(item), 0U);
      EXPECT_EQ(route.bytes(item), share * 4);
      EXPECT_EQ(target_element(route, item), begin);
      begin += share;
    }
    EXPECT_EQ(test.geometry.share_offset(kRanks) * test.geometry.route(0, 0).unit_bytes(item), begin * 4);
  }
}

TEST(Geometry, ReduceTakesTheReadersShareOfEverySource) {
  for (const Case& test : cases(Pattern::kReduce)) {
    SCOPED_TRACE(test.name);
    const Item item = item_of(kCount);
    size_t whole = 0, begin = 0;
    for (const size_t share : test.shares) whole += share;
    for (Rank reader = 0; reader < kRanks; ++reader) {
      const size_t share = test.shares[static_cast<size_t>(reader)];
      for (Rank source = 0; source < kRanks; ++source) {
        const Route route = test.geometry.route(source, reader);
        EXPECT_EQ(route.source_bytes(item), whole * 4);
        EXPECT_EQ(route.source_offset_bytes(item), begin * 4);
        EXPECT_EQ(route.bytes(item), share * 4);
        EXPECT_EQ(target_element(route, item), 0U);
      }
      begin += share;
    }
  }
}

TEST(Geometry, ExchangeTakesThePartForTheReader) {
  const Geometry geometry(Pattern::kExchange, kRanks);
  const Item item = item_of(kCount);
  for (Rank source = 0; source < kRanks; ++source) {
    for (Rank reader = 0; reader < kRanks; ++reader) {
      const Route route = geometry.route(source, reader);
      EXPECT_EQ(route.source_bytes(item), kRanks * kCount * 4);
      EXPECT_EQ(route.source_offset_bytes(item), static_cast<size_t>(reader) * kCount * 4);
      EXPECT_EQ(route.bytes(item), kCount * 4);
      EXPECT_EQ(target_element(route, item), static_cast<size_t>(source) * kCount);
    }
  }
}

// The root has its bytes already.
TEST(Geometry, OnlyTheRootOfABroadcastIsRead) {
  const Geometry geometry(Pattern::kBroadcast, kRanks, {}, kRoot);
  const Item item = item_of(kCount);
  for (Rank source = 0; source < kRanks; ++source) {
    EXPECT_EQ(geometry.is_read(source), source == kRoot);
    for (Rank reader = 0; reader < kRanks; ++reader) {
      EXPECT_EQ(geometry.reads(source, reader), source == kRoot && reader != kRoot);
      EXPECT_EQ(geometry.route(source, reader).bytes(item), source == kRoot ? kCount * 4 : 0);
    }
  }
}

TEST(Geometry, OnlyTheRootOfAGatherTakesShards) {
  const Geometry geometry(Pattern::kGatherTo, kRanks, {}, kRoot);
  const Item item = item_of(kCount);
  for (Rank source = 0; source < kRanks; ++source) {
    EXPECT_EQ(geometry.is_read(source), source != kRoot);
    EXPECT_EQ(geometry.reader_of(source), kRoot);
    for (Rank reader = 0; reader < kRanks; ++reader) {
      const Route route = geometry.route(source, reader);
      EXPECT_EQ(route.source_bytes(item), kCount * 4);
      EXPECT_EQ(route.bytes(item), reader == kRoot ? kCount * 4 : 0);
      EXPECT_EQ(target_element(route, item), reader == kRoot ? static_cast<size_t>(source) * kCount : 0);
    }
  }
}

TEST(Geometry, EveryReaderOfAScatterTakesItsPartOfTheRoot) {
  const Geometry geometry(Pattern::kScatter, kRanks, {}, kRoot);
  const Item item = item_of(kCount);
  for (Rank source = 0; source < kRanks; ++source) {
    EXPECT_EQ(geometry.is_read(source), source == kRoot);
    for (Rank reader = 0; reader < kRanks; ++reader) {
      const Route route = geometry.route(source, reader);
      EXPECT_EQ(route.source_bytes(item), source == kRoot ? kRanks * kCount * 4 : 0);
      EXPECT_EQ(route.bytes(item), source == kRoot ? kCount * 4 : 0);
      EXPECT_EQ(route.source_offset_bytes(item), source == kRoot ? static_cast<size_t>(reader) * kCount * 4 : 0);
      EXPECT_EQ(target_element(route, item), 0U);
    }
  }
}

TEST(Geometry, OnlyTheRootOfAReductionTakesSources) {
  const Geometry geometry(Pattern::kReduceTo, kRanks, {}, kRoot);
  const Item item = item_of(kCount);
  EXPECT_TRUE(geometry.reduces());
  for (Rank source = 0; source < kRanks; ++source) {
    EXPECT_EQ(geometry.is_read(source), source != kRoot);
    EXPECT_EQ(geometry.reader_of(source), kRoot);
    for (Rank reader = 0; reader < kRanks; ++reader) {
      const Route route = geometry.route(source, reader);
      EXPECT_EQ(route.source_bytes(item), kCount * 4);
      EXPECT_EQ(route.source_offset_bytes(item), 0U);
      EXPECT_EQ(route.bytes(item), reader == kRoot ? kCount * 4 : 0);
      EXPECT_EQ(target_element(route, item), 0U);
    }
  }
}

// What one rank of five knows of counts that differ for each pair: counts[source][reader].
struct Pairs {
  explicit Pairs(Rank me) {
    for (size_t source = 0; source < kRanks; ++source) {
      in[source].assign(1, 0);
      for (size_t reader = 0; reader < kRanks; ++reader)
        in[source].push_back(in[source].back() + count(source, reader));
      rows[source] = in[source].data();
      out.push_back(out.back() + count(source, static_cast<size_t>(me)));
    }
    offsets = {rows, out};
  }
  static size_t count(size_t source, size_t reader) { return (3 * source + 5 * reader) % 4; }
  Geometry geometry() const { return Geometry::paired(kRanks, offsets); }

  std::vector<uint64_t> in[kRanks], out = {0};
  const uint64_t* rows[kRanks];
  PairOffsets offsets;
};

TEST(Geometry, PairsExchangeTheirOwnCounts) {
  const Item item = item_of(0);
  for (Rank me = 0; me < kRanks; ++me) {
    const Pairs pairs(me);
    const Geometry geometry = pairs.geometry();
    size_t before = 0;  // in the output
    for (Rank source = 0; source < kRanks; ++source) {
      const auto s = static_cast<size_t>(source), m = static_cast<size_t>(me);
      size_t offset = 0, whole = 0;
      for (size_t reader = 0; reader < kRanks; ++reader) {
        if (reader < m) offset += Pairs::count(s, reader);
        whole += Pairs::count(s, reader);
        EXPECT_EQ(geometry.reads(source, static_cast<Rank>(reader)), Pairs::count(s, reader) != 0);
      }
      const Route route = geometry.route(source, me);
      EXPECT_EQ(route.source_bytes(item), whole * 4);
      EXPECT_EQ(route.source_offset_bytes(item), offset * 4);
      EXPECT_EQ(route.bytes(item), Pairs::count(s, m) * 4);
      EXPECT_EQ(target_element(route, item), before);
      EXPECT_EQ(geometry.omitted_length(source), Pairs::count(s, s));
      before += Pairs::count(s, m);
    }
  }
}

// Items that one rank each owns, one of the ranks nothing.
TEST(Geometry, PartitionsGiveEveryItemToOneRank) {
  const std::vector<size_t> bounds = {0, 2, 2, 5, 6, 7};
  const Item item = item_of(kCount);
  const auto reduce = Geometry::partitioned(Pattern::kReduce, kRanks, bounds);
  const auto gather = Geometry::partitioned(Pattern::kGather, kRanks, bounds);
  EXPECT_EQ(gather.gathered_length(), 1U);
  EXPECT_FALSE(gather.is_even() || reduce.is_even());
  for (Rank source = 0; source < kRanks; ++source) {
    for (Rank reader = 0; reader < kRanks; ++reader) {
      const auto [first, end] = reduce.items(source, reader, 7);
      EXPECT_EQ(first, bounds[static_cast<size_t>(reader)]);
      EXPECT_EQ(end, bounds[static_cast<size_t>(reader) + 1]);
      EXPECT_EQ(gather.items(source, reader, 7).first, bounds[static_cast<size_t>(source)]);
      EXPECT_EQ(gather.items(source, reader, 7).end, bounds[static_cast<size_t>(source) + 1]);
      EXPECT_EQ(reduce.route(source, reader).bytes(item), kCount * 4);
      EXPECT_EQ(target_element(gather.route(source, reader), item), 0U);
      EXPECT_EQ(gather.reads(source, reader), source != reader);
    }
  }
}

// A rooted pattern needs nothing but its routes and reads(): what a reader does not take has no length, unless it lies
// in its place already.
TEST(Geometry, ReadsFollowFromTheRoutes) {
  for (const Pattern pattern : {Pattern::kGather, Pattern::kReduce, Pattern::kReduceAll, Pattern::kBroadcast,
                                Pattern::kExchange, Pattern::kGatherTo, Pattern::kScatter, Pattern::kReduceTo}) {
    const Geometry geometry(pattern, kRanks, {}, kRoot);
    for (Rank source = 0; source < kRanks; ++source) {
      bool is_read = false;
      for (Rank reader = 0; reader < kRanks; ++reader) {
        const bool is_there = pattern == Pattern::kBroadcast && source == reader;
        EXPECT_EQ(geometry.reads(source, reader), geometry.route(source, reader).length != 0 && !is_there);
        is_read = is_read || (source != reader && geometry.reads(source, reader));
      }
      EXPECT_EQ(geometry.is_read(source), is_read);
    }
  }
}

// What messages omit is the source's own part, and the parts of all others are where message_route says.
TEST(Geometry, MessagesOmitTheSourcesOwnPart) {
  std::vector<Case> tests = cases(Pattern::kReduce);
  tests.push_back({"exchange", Geometry(Pattern::kExchange, kRanks), std::vector<size_t>(kRanks, kCount)});
  const Item item = item_of(kCount);
  for (const Case& test : tests) {
    SCOPED_TRACE(test.name);
    for (Rank source = 0; source < kRanks; ++source) {
      size_t position = 0;  // elements
      for (Rank reader = 0; reader < kRanks; ++reader) {
        if (reader == source) continue;
        const Route route = test.geometry.message_route(source, reader);
        EXPECT_EQ(route.source_offset_bytes(item), position * 4);
        position += test.shares[static_cast<size_t>(reader)];
        EXPECT_EQ(route.source_offset_bytes(item) + route.bytes(item), position * 4);
        EXPECT_LE(position * 4, route.source_bytes(item));
      }
      EXPECT_EQ(test.geometry.message_route(source, source).source_bytes(item), position * 4);
    }
  }
}

TEST(Geometry, MessagesOfARootOmitItsOwnPart) {
  const Geometry scatter(Pattern::kScatter, kRanks, {}, kRoot);
  const Item item = item_of(kCount);
  EXPECT_EQ(scatter.message_route(kRoot, kRoot).source_bytes(item), (kRanks - 1) * kCount * 4);
  for (Rank reader = 0; reader < kRanks; ++reader) {
    const auto before = static_cast<size_t>(reader > kRoot ? reader - 1 : reader);
    if (reader == kRoot) continue;
    EXPECT_EQ(scatter.message_route(kRoot, reader).source_offset_bytes(item), before * kCount * 4);
  }
}

// Both sides of a transfer take this walk: every byte of every item once, in order, none across the end of a chunk.
TEST(TransferCursor, CoversEveryByteOfEveryItemOnce) {
  const Geometry geometry(Pattern::kGather, kRanks);
  std::vector<Item> items;
  for (const size_t count : {3U, 0U, 40U, 1U, 0U}) items.push_back(item_of(count));
  for (const size_t chunk_bytes : {8U, 16U, 64U, 4096U}) {
    SCOPED_TRACE(chunk_bytes);
    std::vector<size_t> covered(items.size(), 0);
    TransferCursor cursor(geometry, items, 0, 1);
    while (cursor.next_chunk(chunk_bytes)) {
      for (TransferCursor::Run run; cursor.next_run(run);) {
        EXPECT_EQ(run.offset_bytes, covered[run.item]);
        EXPECT_EQ(run.position_bytes % kItemAlign, 0U);
        EXPECT_LE(run.position_bytes + run.bytes, chunk_bytes);
        covered[run.item] += run.bytes;
      }
    }
    for (size_t i = 0; i < items.size(); ++i) EXPECT_EQ(covered[i], items[i].count * 4);
  }
}

}  // namespace
}  // namespace shardcomm
