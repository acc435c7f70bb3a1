// BlockMap: no two blocks overlap, neighbours join, and what is refused changes nothing. The memory is never touched,
// so the ranges are mere numbers here.
#include "memory/block_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace shardcomm {
namespace {

std::byte* at(uintptr_t address) { return reinterpret_cast<std::byte*>(address); }
uintptr_t number(const std::byte* address) { return reinterpret_cast<uintptr_t>(address); }

constexpr uintptr_t kBase = uintptr_t{1} << 40;

TEST(BlockMap, IsEmptyWithoutRanges) {
  BlockMap map;
  EXPECT_EQ(map.take(1, 64), nullptr);
  EXPECT_EQ(map.give(at(kBase)), 0u);
  EXPECT_EQ(map.give(nullptr), 0u);
  EXPECT_FALSE(map.remove(at(kBase)));
}

TEST(BlockMap, GivesOutAllOfARange) {
  for (const size_t block : {size_t{0}, size_t{1}, size_t{64}, size_t{65}, size_t{4096}}) {
    SCOPED_TRACE(block);
    BlockMap map;
    map.add(at(kBase), 1 << 16);
    size_t count = 0;
    while (map.take(block, 64) != nullptr) ++count;
    EXPECT_EQ(count, (1 << 16) / BlockMap::rounded(block));
  }
}

// Sizes next to the borders of the lists by which free blocks are kept.
TEST(BlockMap, FindsABlockThatFitsExactly) {
  for (size_t power = 6; power < 48; ++power) {
    for (const int64_t more : {-128, -64, 0, 64, 128, 4096 + 64}) {
      const auto bytes = static_cast<size_t>((int64_t{1} << power) + more);
      if (static_cast<int64_t>(bytes) < 64 || bytes > BlockMap::kMostBytes) continue;
      SCOPED_TRACE(bytes);
      BlockMap map;
      map.add(at(kBase), bytes);
      EXPECT_EQ(map.take(bytes + 64, 64), nullptr);
      EXPECT_EQ(map.take(bytes, 64), at(kBase));
      EXPECT_EQ(map.take(64, 64), nullptr);
      EXPECT_EQ(map.give(at(kBase)), bytes);
      EXPECT_TRUE(map.remove(at(kBase)));
    }
  }
}

// Many blocks of the list are a little too small, and the one that fits was given back first.
TEST(BlockMap, FindsTheOneBlockOfItsListThatFits) {
  constexpr size_t kFew = 100 * 64, kEnough = 101 * 64;  // one list
  BlockMap map;
  map.add(at(kBase), 64 * (kFew + 64) + kEnough + 64);
  std::vector<std::byte*> blocks, walls;
  std::byte* const enough = map.take(kEnough, 64);
  walls.push_back(map.take(64, 64));
  for (int i = 0; i < 64; ++i) {
    blocks.push_back(map.take(kFew, 64));
    walls.push_back(map.take(64, 64));
  }
  EXPECT_EQ(map.take(64, 64), nullptr);
  EXPECT_EQ(map.give(enough), kEnough);
  for (std::byte* block : blocks) EXPECT_EQ(map.give(block), kFew);
  EXPECT_EQ(map.take(kEnough, 64), enough);
  EXPECT_EQ(map.take(kEnough, 64), nullptr);
}

TEST(BlockMap, AlignsBlocks) {
  BlockMap map;
  map.add(at(kBase + 64), 1 << 22);
  std::vector<std::byte*> blocks;
  for (size_t align = 64; align <= size_t{1} << 20; align *= 2) {
    std::byte* const block = map.take(100, align);
    ASSERT_NE(block, nullptr) << align;
    EXPECT_EQ(number(block) % align, 0u);
    blocks.push_back(block);
  }
  EXPECT_EQ(map.take(1, size_t{1} << 30), nullptr);
  for (std::byte* block : blocks) EXPECT_EQ(map.give(block), 128u);
  EXPECT_TRUE(map.remove(at(kBase + 64)));  // what was skipped for the alignment has joined again
}

TEST(BlockMap, RefusesWhatIsNotTaken) {
  BlockMap map;
  map.add(at(kBase), 1 << 16);
  std::byte* const block = map.take(1000, 64);
  EXPECT_EQ(map.give(block + 64), 0u);
  EXPECT_EQ(map.give(block + 1), 0u);
  EXPECT_EQ(map.give(block + 1024), 0u);  // the beginning of a free block
  EXPECT_EQ(map.give(block), 1024u);
  EXPECT_EQ(map.give(block), 0u);
  EXPECT_TRUE(map.remove(at(kBase)));
  EXPECT_FALSE(map.remove(at(kBase)));
}

TEST(BlockMap, RemovesOnlyWhollyFreeRanges) {
  BlockMap map;
  map.add(at(kBase), 1 << 12);
  map.add(at(kBase + (1 << 12)), 1 << 12);  // next to it, and yet another range
  std::vector<std::byte*> blocks;
  for (std::byte* block; (block = map.take(1 << 11, 64)) != nullptr;) blocks.push_back(block);
  ASSERT_EQ(blocks.size(), 4u);
  std::sort(blocks.begin(), blocks.end());  // two in each range
  for (const size_t i : {size_t{1}, size_t{2}, size_t{3}}) {
    EXPECT_FALSE(map.remove(at(kBase)));
    EXPECT_FALSE(map.remove(at(kBase + (1 << 12))));
    EXPECT_NE(map.give(blocks[i]), 0u);
  }
  EXPECT_EQ(map.take(1 << 13, 64), nullptr);
  EXPECT_FALSE(map.remove(at(kBase)));
  EXPECT_TRUE(map.remove(at(kBase + (1 << 12))));
  EXPECT_NE(map.give(blocks[0]), 0u);
  EXPECT_TRUE(map.remove(at(kBase)));
}

// Against a model: the blocks that are taken, by address.
TEST(BlockMap, KeepsBlocksApartUnderChurn) {
  const auto seed = static_cast<uint32_t>(::testing::UnitTest::GetInstance()->random_seed());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random); };
  BlockMap map;
  struct Range {
    uintptr_t base;
    size_t bytes;
  };
  const std::vector<Range> ranges{{kBase, 1 << 20}, {kBase + (1 << 20), 3 << 20}, {kBase + (1 << 30), 64}};
  for (const Range& range : ranges) map.add(at(range.base), range.bytes);
  std::map<uintptr_t, size_t> taken;  // address to bytes
  size_t refused = 0;
  for (int step = 0; step < 200'000; ++step) {
    if (taken.empty() || below(100) < 52) {
      const size_t bytes = below(20) == 0 ? below(600'000) : below(3000), align = size_t{64} << below(8);
      std::byte* const block = map.take(bytes, align);
      if (block == nullptr) {
        ++refused;
        continue;
      }
      const uintptr_t begin = number(block), end = begin + BlockMap::rounded(bytes);
      ASSERT_EQ(begin % align, 0u);
      ASSERT_TRUE(std::any_of(ranges.begin(), ranges.end(), [&](const Range& range) {
        return begin >= range.base && end <= range.base + range.bytes;
      }));
      const auto next = taken.lower_bound(begin);
      ASSERT_TRUE(next == taken.end() || end <= next->first);
      ASSERT_TRUE(next == taken.begin() || std::prev(next)->first + std::prev(next)->second <= begin);
      taken[begin] = end - begin;
    } else {
      auto victim = taken.lower_bound(kBase + below(4 << 20));
      if (victim == taken.end()) victim = taken.begin();
      ASSERT_EQ(map.give(at(victim->first)), victim->second);
      ASSERT_EQ(map.give(at(victim->first)), 0u);
      taken.erase(victim);
    }
  }
  EXPECT_GT(refused, 0u);
  for (const auto& [begin, bytes] : taken) EXPECT_EQ(map.give(at(begin)), bytes);
  for (const Range& range : ranges) EXPECT_TRUE(map.remove(at(range.base)));
}

}  // namespace
}  // namespace shardcomm
