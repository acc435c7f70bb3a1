// Packs tensors into flat buckets. Pure: the same arguments give the same plan on every rank, and a fingerprint shows
// it.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <limits>

#include "base/hash.h"
#include "shardcomm/bucket.h"

namespace shardcomm {

struct BucketPlan::Rep {
  std::vector<BucketLayout> buckets;
  std::vector<Placement> placements;
  int world_size;
  uint64_t fingerprint;
};

namespace {

constexpr size_t kNoBucket = std::numeric_limits<size_t>::max();
constexpr size_t kMaxBytes = std::numeric_limits<size_t>::max() / 4;  // keeps every sum below free of overflow

size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Fills buckets one tensor at a time. `used` is in elements, padding between tensors included.
class Packer {
 public:
  Packer(int world_size, const BucketOptions& options) : ranks_(static_cast<size_t>(world_size)), options_(options) {
    open_.fill(kNoBucket);
  }

  Status place(const TensorSpec& tensor) {
    const size_t element_bytes = size_of(tensor.dtype);
    if (tensor.count > (kMaxBytes - total_bytes_) / element_bytes) {
      return Status(Code::kInvalidArgument,
                    fmt::format("tensor {} of {} elements is beyond the address space", tensor.name, tensor.count));
    }
    total_bytes_ += tensor.count * element_bytes + options_.align_bytes;
    const size_t step = alignment(element_bytes);
    const bool oversized = options_.target_bytes != 0 && padded(tensor.count, element_bytes) > options_.target_bytes;
    size_t& open = open_[static_cast<size_t>(tensor.dtype)];
    size_t bucket = open;
    size_t offset = bucket == kNoBucket ? 0 : round_up(used_[bucket], step);
    const bool full = bucket != kNoBucket && options_.target_bytes != 0 &&
                      padded(offset + tensor.count, element_bytes) > options_.target_bytes;
    if (bucket == kNoBucket || full) {
      bucket = used_.size();
      offset = 0;
      used_.push_back(0);
      dtypes_.push_back(tensor.dtype);
      if (!oversized) open = bucket;  // an oversized one has its bucket to itself; the open one stays open
    }
    used_[bucket] = offset + tensor.count;
    placements_.push_back({static_cast<uint32_t>(bucket), offset, tensor.count});
    return {};
  }

  std::vector<BucketLayout> layouts() const {
    std::vector<BucketLayout> buckets;
    for (size_t b = 0; b < used_.size(); ++b) {
      const size_t shard = round_up((used_[b] + ranks_ - 1) / ranks_, alignment(size_of(dtypes_[b])));
      buckets.push_back({dtypes_[b], shard, shard * ranks_});
    }
    return buckets;
  }
  std::vector<Placement> placements() && { return std::move(placements_); }

 private:
  size_t alignment(size_t element_bytes) const { return std::max<size_t>(1, options_.align_bytes / element_bytes); }
  // Bytes of a bucket that holds `count` elements, once its shards are equal and aligned.
  size_t padded(size_t count, size_t element_bytes) const {
    return round_up((count + ranks_ - 1) / ranks_, alignment(element_bytes)) * ranks_ * element_bytes;
  }

  const size_t ranks_;
  const BucketOptions options_;
  size_t total_bytes_ = 0;
  std::array<size_t, kDTypeCount> open_;
  std::vector<size_t> used_;
  std::vector<DType> dtypes_;
  std::vector<Placement> placements_;
};

uint64_t fingerprint_of(std::span<const TensorSpec> tensors, const BucketOptions& options,
                        std::span<const BucketLayout> buckets, std::span<const Placement> placements, int world_size) {
  WordHash print;
  print.add(static_cast<uint64_t>(world_size));
  print.add(options.target_bytes);
  print.add(options.align_bytes);
  for (const TensorSpec& tensor : tensors) {
    print.add(tensor.name);
    print.add(tensor.count);
    print.add(static_cast<uint64_t>(tensor.dtype));
  }
  for (const BucketLayout& bucket : buckets) print.add(bucket.shard_count);
  for (const Placement& placement : placements) {
    print.add(placement.bucket);
    print.add(placement.offset);
  }
  return print.value();
}

}  // namespace

Result<BucketPlan> BucketPlan::make(std::span<const TensorSpec> tensors, int world_size, const BucketOptions& options) {
  if (world_size < 1) return Status(Code::kInvalidArgument, fmt::format("buckets for {} ranks", world_size));
  if (!std::has_single_bit(options.align_bytes) || options.align_bytes > (size_t{1} << 30)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("a bucket alignment of {} bytes is not a power of two up to 1G", options.align_bytes));
  }
  if (static_cast<size_t>(world_size) > kMaxBytes / options.align_bytes / (tensors.size() + 1)) {
    return Status(Code::kInvalidArgument, fmt::format("buckets for {} ranks are beyond the address space", world_size));
  }
  Packer packer(world_size, options);
  for (const TensorSpec& tensor : tensors) {
    if (!is_valid(tensor.dtype)) {
      return Status(Code::kInvalidArgument, fmt::format("tensor {} has no known dtype", tensor.name));
    }
    SHARDCOMM_TRY(packer.place(tensor));
  }
  auto rep = std::make_shared<Rep>();
  rep->world_size = world_size;
  rep->buckets = packer.layouts();
  rep->placements = std::move(packer).placements();
  rep->fingerprint = fingerprint_of(tensors, options, rep->buckets, rep->placements, world_size);
  BucketPlan plan;
  plan.rep_ = std::move(rep);
  return plan;
}

std::span<const BucketLayout> BucketPlan::buckets() const noexcept { return rep_->buckets; }
std::span<const Placement> BucketPlan::placements() const noexcept { return rep_->placements; }
int BucketPlan::world_size() const noexcept { return rep_->world_size; }
uint64_t BucketPlan::fingerprint() const noexcept { return rep_->fingerprint; }

}  // namespace shardcomm
