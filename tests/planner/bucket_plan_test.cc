// BucketPlan is pure: its promises are checked on random tensors, at many world sizes and targets.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include "shardcomm/bucket.h"

namespace shardcomm {
namespace {

size_t bytes_of(const BucketLayout& bucket) { return bucket.full_count * size_of(bucket.dtype); }

// What must hold of a tensor that has several buckets; returns the first promise broken, or "".
std::string broken_cut(const TensorSpec& tensor, const Placement& place, const BucketPlan& plan,
                       const BucketOptions& options) {
  if (!options.cut_tensors) return "only a plan that may cut does";
  if (place.offset != 0) return "a cut tensor begins with its first bucket";
  const size_t element_bytes = size_of(tensor.dtype);
  const size_t part = plan.buckets()[place.bucket].full_count;
  const size_t unit = static_cast<size_t>(plan.world_size()) * std::max<size_t>(1, options.align_bytes / element_bytes);
  if (part * (place.bucket_count - 1) >= tensor.count) return "every bucket of a cut tensor holds some of it";
  for (uint32_t i = 0; i + 1 < place.bucket_count; ++i) {
    if (plan.buckets()[place.bucket + i].full_count != part) return "all parts but the last are equal and full";
  }
  const size_t rows = std::lcm(tensor.row_elements, unit);
  if (rows * element_bytes <= options.target_bytes && part % tensor.row_elements != 0) return "cuts are between rows";
  if (part * element_bytes > options.target_bytes && part > unit) return "a part does not exceed the target";
  if ((part + rows) * element_bytes <= options.target_bytes) return "a part is as large as the target allows";
  return "";
}

// What must hold of any plan; returns the first promise broken, or "".
std::string broken_promise(std::span<const TensorSpec> tensors, const BucketPlan& plan, const BucketOptions& options) {
  if (plan.placements().size() != tensors.size()) return "one placement a tensor";
  std::vector<size_t> end(plan.buckets().size(), 0);
  std::vector<size_t> population(plan.buckets().size(), 0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Placement& place = plan.placements()[i];
    if (place.bucket_count < 1 || place.bucket + place.bucket_count > plan.buckets().size()) return "buckets exist";
    if (place.count != tensors[i].count) return "the count is the tensor's";
    if (place.bucket_count > 1) {
      if (const std::string broken = broken_cut(tensors[i], place, plan, options); !broken.empty()) return broken;
    }
    size_t left = place.count;
    for (uint32_t b = place.bucket; b < place.bucket + place.bucket_count; ++b) {
      const BucketLayout& bucket = plan.buckets()[b];
      const size_t offset = b == place.bucket ? place.offset : 0;
      if (bucket.dtype != tensors[i].dtype) return "a bucket holds one dtype";
      if (offset < end[b]) return "order is kept and nothing overlaps";
      if (offset * size_of(bucket.dtype) % options.align_bytes != 0) return "tensors are aligned";
      const size_t count = place.bucket_count == 1 ? left : std::min(left, bucket.full_count);
      end[b] = offset + count;
      left -= count;
      ++population[b];
    }
    if (left != 0) return "a tensor has all of its elements";
    if (place.bucket_count == 1 || options.target_bytes == 0) continue;
    for (uint32_t b = place.bucket; b < place.bucket + place.bucket_count; ++b) {
      if (population[b] != 1) return "a cut tensor has its buckets to itself";
    }
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
    if (options.target_bytes != 0 && bytes_of(bucket) > options.target_bytes) {
      if (population[b] > 1) return "only a tensor alone exceeds the target";
      if (options.cut_tensors && bytes_of(bucket) > slack) return "only one step a shard exceeds the target";
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
      tensors[i] = {.name = std::to_string(i),
                    .count = random() % (round % 3 == 0 ? 10 : 3000),
                    .dtype = static_cast<DType>(random() % kDTypeCount),
                    .row_elements = 1 + random() % (round % 2 == 0 ? 40 : 1500)};
    }
    const BucketOptions options{.target_bytes = (random() % 3) * 4096,
                                .align_bytes = size_t{1} << (random() % 9),
                                .cut_tensors = random() % 2 == 0};
    for (const int size : {1, 2, 3, 4, 7, 8, 64}) {
      const auto plan = BucketPlan::make(tensors, size, options);
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      ASSERT_EQ(broken_promise(tensors, plan.value(), options), "")
          << "ranks " << size << " target " << options.target_bytes << " cut " << options.cut_tensors;
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

// Elements of each bucket that one f32 tensor is cut into.
std::vector<size_t> cut(size_t rows, size_t row_elements, int ranks, size_t target_bytes) {
  const std::vector<TensorSpec> tensors = {{"t", rows * row_elements, DType::kF32, row_elements}};
  const auto plan = BucketPlan::make(tensors, ranks, {.target_bytes = target_bytes, .cut_tensors = true});
  std::vector<size_t> counts;
  for (const BucketLayout& bucket : plan.value().buckets()) counts.push_back(bucket.full_count);
  EXPECT_EQ(plan.value().placements()[0].bucket_count, counts.size());
  return counts;
}

TEST(BucketPlan, CutsLargeTensorsBetweenRows) {
  constexpr size_t kMiB = size_t{1} << 20;
  const size_t quarter = kMiB / sizeof(float);
  EXPECT_EQ(cut(1024, 1024, 2, kMiB), std::vector<size_t>(4, quarter));
  EXPECT_EQ(cut(1023, 1024, 2, kMiB), (std::vector<size_t>{quarter, quarter, quarter, 255 * 1024}));
  // 3 ranks of 32 elements: 349 rows of 750 fill a MiB, and 16 rows divide evenly.
  EXPECT_EQ(cut(501, 750, 3, kMiB), (std::vector<size_t>{336 * 750, 165 * 750 + 90}));
  // A vector has rows of one element: cut where shards are aligned.
  EXPECT_EQ(cut(1000, 1, 2, 1024), (std::vector<size_t>{256, 256, 256, 256}));
  // Rows that are larger than a bucket, or of which whole ones do not divide evenly within it, are cut too.
  EXPECT_EQ(cut(3, 300, 2, 512), (std::vector<size_t>{128, 128, 128, 128, 128, 128, 128, 64}));
  EXPECT_EQ(cut(5, 65, 2, 1024), (std::vector<size_t>{256, 128}));
  // Less than one line a rank is not moved.
  EXPECT_EQ(cut(4, 32, 2, 1), (std::vector<size_t>{64, 64}));
  EXPECT_EQ(cut(1024, 1024, 2, 0), std::vector<size_t>{4 * quarter});
}

TEST(BucketPlan, KeepsSmallTensorsTogetherBesideACutOne) {
  const std::vector<TensorSpec> tensors = {
      {"a", 10, DType::kF32}, {"huge", 1000, DType::kF32, 10}, {"b", 10, DType::kF32}, {"c", 10, DType::kF32}};
  const auto plan = BucketPlan::make(tensors, 1, {.target_bytes = 2048, .cut_tensors = true});
  ASSERT_TRUE(plan.ok());
  std::vector<std::array<size_t, 4>> where;
  for (const Placement& place : plan.value().placements())
    where.push_back({place.bucket, place.bucket_count, place.offset, place.count});
  const std::vector<std::array<size_t, 4>> expected = {{0, 1, 0, 10}, {1, 3, 0, 1000}, {0, 1, 32, 10}, {0, 1, 64, 10}};
  EXPECT_EQ(where, expected);
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
  const std::vector<TensorSpec> long_one = {{"a", size_t{1} << 40, DType::kF32}};
  EXPECT_EQ(BucketPlan::make(long_one, 2, {.target_bytes = 1024, .cut_tensors = true}).status().code(),
            Code::kInvalidArgument);
  EXPECT_TRUE(BucketPlan::make(long_one, 2, {.target_bytes = 1024}).ok());
}

TEST(BucketPlan, FingerprintsDifferWhenAnythingDoes) {
  const std::vector<TensorSpec> base = {{"a", 100, DType::kF32}, {"b", 200, DType::kBF16}};
  auto renamed = base, resized = base, retyped = base, reshaped = base;
  renamed[0].name = "c";
  resized[1].count = 201;
  retyped[1].dtype = DType::kF16;
  reshaped[1].row_elements = 2;
  std::vector<uint64_t> prints;
  for (const auto& tensors : {base, renamed, resized, retyped, reshaped})
    prints.push_back(BucketPlan::make(tensors, 2, {}).value().fingerprint());
  prints.push_back(BucketPlan::make(base, 4, {}).value().fingerprint());
  prints.push_back(BucketPlan::make(base, 2, {.target_bytes = 4096}).value().fingerprint());
  prints.push_back(BucketPlan::make(base, 2, {.align_bytes = 64}).value().fingerprint());
  prints.push_back(BucketPlan::make(base, 2, {.cut_tensors = true}).value().fingerprint());
  EXPECT_EQ(prints[0], BucketPlan::make(base, 2, {}).value().fingerprint());
  std::sort(prints.begin(), prints.end());
  EXPECT_EQ(std::unique(prints.begin(), prints.end()), prints.end());
}

}  // namespace
}  // namespace shardcomm
