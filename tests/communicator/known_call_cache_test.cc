// The memory of calls of many tensors by itself: what counts as the same call, and how much is kept.
#include "core/known_calls.h"

#include <gtest/gtest.h>

namespace shardcomm {
namespace {

constexpr int kRanks = 4;

// Addresses that nobody looks behind, different ones for every `number`.
std::vector<GatherItem> call(size_t number, size_t items = 20) {
  std::vector<GatherItem> given;
  for (size_t i = 0; i < items; ++i) {
    const uintptr_t at = (number * 10'000 + i + 1) << 12;
    given.push_back({reinterpret_cast<void*>(at), reinterpret_cast<void*>(at + 64), i, DType::kF32});
  }
  return given;
}

std::shared_ptr<KnownCall> made(std::span<const GatherItem> given, std::string_view label = {},
                                Collective collective = Collective::kAllGatherMany) {
  std::vector<Item> items;
  for (const GatherItem& one : given) items.push_back(item_of(one));
  return std::make_shared<KnownCall>(collective, std::move(items), label);
}

std::shared_ptr<KnownCall> find(const KnownCalls& calls, const std::vector<GatherItem>& given,
                                std::string_view label = {}) {
  return calls.find(Collective::kAllGatherMany, std::span<const GatherItem>(given), label);
}

TEST(KnownCallCache, FindsTheSameCallAndNoOther) {
  KnownCalls calls(kRanks);
  const auto given = call(1);
  EXPECT_EQ(find(calls, given), nullptr);
  const auto kept = made(given, "unit");
  calls.keep(kept);
  EXPECT_EQ(find(calls, given, "unit"), kept);
  const auto of_other_label = made(given, "another unit");
  calls.keep(of_other_label);
  EXPECT_EQ(find(calls, given, "unit"), kept);
  EXPECT_EQ(find(calls, given, "another unit"), of_other_label);
  EXPECT_EQ(find(calls, given, "other"), nullptr);
  EXPECT_EQ(find(calls, given), nullptr);
  EXPECT_EQ(calls.find(Collective::kReduceScatterMany, std::span<const GatherItem>(given), "unit"), nullptr);
  for (size_t i = 0; i < given.size(); ++i) {
    auto other = given;
    other[i].count += 1;
    EXPECT_EQ(find(calls, other, "unit"), nullptr) << "count of item " << i;
    other = given;
    other[i].dtype = DType::kI32;
    EXPECT_EQ(find(calls, other, "unit"), nullptr) << "dtype of item " << i;
    other = given;
    other[i].shard = &other;
    EXPECT_EQ(find(calls, other, "unit"), nullptr) << "shard of item " << i;
    other = given;
    other[i].full = &other;
    EXPECT_EQ(find(calls, other, "unit"), nullptr) << "full of item " << i;
  }
  const std::vector<GatherItem> fewer(given.begin(), given.end() - 1);
  EXPECT_EQ(find(calls, fewer, "unit"), nullptr);
}

TEST(KnownCallCache, KeepsNoCallOfFewTensors) {
  KnownCalls calls(kRanks);
  for (const size_t items : {size_t{0}, size_t{1}, size_t{15}}) {
    EXPECT_FALSE(KnownCalls::is_worth_it(items));
    EXPECT_EQ(find(calls, call(items, items)), nullptr) << items;
  }
  EXPECT_TRUE(KnownCalls::is_worth_it(16));
  calls.keep(made(call(16, 16)));
  EXPECT_NE(find(calls, call(16, 16)), nullptr);
}

// A model of a thousand units is known whole. Calls that never come again do not pile up.
TEST(KnownCallCache, KeepsAModelAndIsBounded) {
  KnownCalls calls(kRanks);
  std::vector<std::weak_ptr<KnownCall>> all;
  const auto keep = [&](size_t number, size_t items) {
    auto kept = made(call(number, items));
    all.push_back(kept);
    calls.keep(std::move(kept));
  };
  for (size_t i = 0; i < 1000; ++i) keep(i, 20);
  for (size_t i = 0; i < 1000; ++i) EXPECT_NE(find(calls, call(i)), nullptr) << i;
  // The same call, made anew a hundred thousand times, takes its own place only.
  for (size_t i = 0; i < 100'000; ++i) calls.keep(made(call(0)));
  for (size_t i = 0; i < 1000; ++i) EXPECT_NE(find(calls, call(i)), nullptr) << i;

  all.clear();
  for (size_t i = 0; i < 1000; ++i) keep(5000 + i, 1000);
  size_t bytes = 0, alive = 0;
  for (const auto& weak : all) {
    if (const auto call = weak.lock(); call != nullptr) {
      bytes += call->bytes(kRanks);
      ++alive;
    }
  }
  EXPECT_GT(alive, 0U);
  EXPECT_LE(bytes, size_t{16} << 20);
  EXPECT_NE(find(calls, call(5999, 1000)), nullptr) << "the last one";
  EXPECT_EQ(find(calls, call(0)), nullptr) << "the first ones are forgotten";

  calls.keep(made(call(7000, 200'000)));  // by itself more than all may take: not kept, nor does it drive out others
  EXPECT_EQ(find(calls, call(7000, 200'000)), nullptr);
  EXPECT_NE(find(calls, call(5999, 1000)), nullptr);
}

}  // namespace
}  // namespace shardcomm
