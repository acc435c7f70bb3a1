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

TEST(Geometry, OnlyTheRootOfABroadcastIsRead) {
  const Geometry geometry(Pattern::kBroadcast, kRanks, {}, kRoot);
  const Item item = item_of(kCount);
  for (Rank source = 0; source < kRanks; ++source) {
    EXPECT_EQ(geometry.is_read(source), source == kRoot);
    for (Rank reader = 0; reader < kRanks; ++reader) {
      EXPECT_EQ(geometry.reads(source, reader), source == kRoot);
      EXPECT_EQ(geometry.route(source, reader).bytes(item), source == kRoot ? kCount * 4 : 0);
    }
  }
}

// A rank that nobody reads has routes without length, so that a rooted pattern needs nothing but its routes and
// reads().
TEST(Geometry, ReadsFollowFromTheRoutes) {
  for (const Pattern pattern :
       {Pattern::kGather, Pattern::kReduce, Pattern::kReduceAll, Pattern::kBroadcast, Pattern::kExchange}) {
    const Geometry geometry(pattern, kRanks, {}, kRoot);
    for (Rank source = 0; source < kRanks; ++source) {
      for (Rank reader = 0; reader < kRanks; ++reader) {
        EXPECT_EQ(geometry.reads(source, reader), geometry.route(source, reader).length != 0);
      }
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
