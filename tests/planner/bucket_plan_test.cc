// BucketPlan is pure: its promises are checked on random tensors, at many world sizes and targets.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "shardcomm/bucket.h"

namespace shardcomm {
namespace {

size_t bytes_of(const BucketLayout& bucket) { return bucket.full_count * size_of(bucket.dtype); }

// What must hold of any plan; returns the first promise broken, or "".
std::string broken_promise(std::span<const TensorSpec> tensors, const BucketPlan& plan, const BucketOptions& options) {
  if (plan.placements().size() != tensors.size()) return "one placement a tensor";
  std::vector<size_t> end(plan.buckets().size(), 0);
  std::vector<size_t> population(plan.buckets().size(), 0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Placement& place = plan.placements()[i];
    if (place.bucket >= plan.buckets().size()) return "the bucket exists";
    const BucketLayout& bucket = plan.buckets()[place.bucket];
    if (bucket.dtype != tensors[i].dtype) return "a bucket holds one dtype";
    if (place.count != tensors[i].count) return "the count is the tensor's";
    if (place.offset < end[place.bucket]) return "order is kept and nothing overlaps";
    if (place.offset * size_of(bucket.dtype) % options.align_bytes != 0) return "tensors are aligned";
    end[place.bucket] = place.offset + place.count;
    ++population[place.bucket];
  }
  for (size_t b = 0; b < plan.buckets().size(); ++b) {
    const BucketLayout& bucket = plan.buckets()[b];
    if (bucket.full_count != bucket.shard_count * static_cast<size_t>(plan.world_size())) return "shards are equal";
    if (bucket.shard_count * size_of(bucket.dtype) % options.align_bytes != 0) return "shards are aligned";
    if (end[b] > bucket.full_count) return "tensors fit";
    const size_t step_bytes = std::max(options.align_bytes, size_of(bucket.dtype));
    const size_t slack = static_cast<size_t>(plan.world_size()) * step_bytes;
    if (bytes_of(bucket) >= end[b] * size_of(bucket.dtype) + slack && end[b] > 0)
      return "padding is below one step a shard";
    if (options.target_bytes != 0 && bytes_of(bucket) > options.target_bytes && population[b] > 1) {
      return "only a tensor alone exceeds the target";
    }
  }
  return "";
}

TEST(BucketPlan, KeepsItsPromisesOnRandomTensors) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::vector<TensorSpec> tensors(random() % 40);
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i] = {std::to_string(i), random() % (round % 3 == 0 ? 10 : 3000),
                    static_cast<DType>(random() % kDTypeCount)};
    }
    const BucketOptions options{.target_bytes = (random() % 3) * 4096, .align_bytes = size_t{1} << (random() % 9)};
    for (const int size : {1, 2, 3, 4, 7, 8, 64}) {
      const auto plan = BucketPlan::make(tensors, size, options);
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      ASSERT_EQ(broken_promise(tensors, plan.value(), options), "")
          << "ranks " << size << " target " << options.target_bytes;
    }
  }
}

TEST(BucketPlan, PacksSmallTensorsTogetherAndLargeOnesAlone) {
  const std::vector<TensorSpec> tensors = {{"bias", 10, DType::kF32},
                                           {"matrix", 4096, DType::kF32},
                                           {"scale", 10, DType::kF32},
                                           {"half", 100, DType::kBF16},
                                           {"last", 900, DType::kF32}};
  const auto plan = BucketPlan::make(tensors, 2, {.target_bytes = 4096, .align_bytes = 128});
  ASSERT_TRUE(plan.ok());
  std::vector<std::pair<uint32_t, size_t>> where;
  for (const Placement& place : plan.value().placements()) where.emplace_back(place.bucket, place.offset);
  const std::vector<std::pair<uint32_t, size_t>> expected = {{0, 0}, {1, 0}, {0, 32}, {2, 0}, {0, 64}};
  EXPECT_EQ(where, expected);
  ASSERT_EQ(plan.value().buckets().size(), 3u);
  EXPECT_EQ(plan.value().buckets()[0].shard_count, 512u);  // 964 elements in two shards of whole 128-byte lines
  EXPECT_EQ(plan.value().buckets()[1].full_count, 4096u);
}

TEST(BucketPlan, MakesOneBucketADtypeWithoutALimit) {
  const std::vector<TensorSpec> tensors = {
      {"a", 1 << 20, DType::kF32}, {"b", 3, DType::kBF16}, {"c", 1 << 20, DType::kF32}};
  const auto plan = BucketPlan::make(tensors, 3, {.target_bytes = 0});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan.value().buckets().size(), 2u);
}

TEST(BucketPlan, AcceptsNothingAndEmptyTensors) {
  const auto none = BucketPlan::make({}, 4, {});
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none.value().buckets().empty());
  const std::vector<TensorSpec> tensors = {{"empty", 0, DType::kF32}, {"one", 1, DType::kF32}};
  const auto plan = BucketPlan::make(tensors, 4, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(broken_promise(tensors, plan.value(), {}), "");
}

TEST(BucketPlan, RefusesWhatCannotBe) {
  const std::vector<TensorSpec> one = {{"a", 5, DType::kF32}};
  const std::vector<TensorSpec> vast = {{"a", SIZE_MAX / 3, DType::kF32}};
  const std::vector<TensorSpec> strange = {{"a", 5, static_cast<DType>(99)}};
  EXPECT_EQ(BucketPlan::make(one, 0, {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(BucketPlan::make(one, -3, {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(BucketPlan::make(one, 2, {.align_bytes = 0}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(BucketPlan::make(one, 2, {.align_bytes = 96}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(BucketPlan::make(vast, 2, {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(BucketPlan::make(strange, 2, {}).status().code(), Code::kInvalidArgument);
}

TEST(BucketPlan, FingerprintsDifferWhenAnythingDoes) {
  const std::vector<TensorSpec> base = {{"a", 100, DType::kF32}, {"b", 200, DType::kBF16}};
  auto renamed = base, resized = base, retyped = base;
  renamed[0].name = "c";
  resized[1].count = 201;
  retyped[1].dtype = DType::kF16;
  std::vector<uint64_t> prints;
  for (const auto& tensors : {base, renamed, resized, retyped})
    prints.push_back(BucketPlan::make(tensors, 2, {}).value().fingerprint());
  prints.push_back(BucketPlan::make(base, 4, {}).value().fingerprint());
  prints.push_back(BucketPlan::make(base, 2, {.target_bytes = 4096}).value().fingerprint());
  prints.push_back(BucketPlan::make(base, 2, {.align_bytes = 64}).value().fingerprint());
  EXPECT_EQ(prints[0], BucketPlan::make(base, 2, {}).value().fingerprint());
  std::sort(prints.begin(), prints.end());
  EXPECT_EQ(std::unique(prints.begin(), prints.end()), prints.end());
}

}  // namespace
}  // namespace shardcomm
