// Packs tensors into flat buckets. Pure: the same arguments give the same plan on every rank, and a fingerprint shows
// it.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <limits>
#include <numeric>

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
constexpr size_t kMaxParts = size_t{1} << 20;                         // of one tensor

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
    if (options_.target_bytes == 0 || padded(tensor.count, element_bytes) <= options_.target_bytes) {
      pack(tensor);
      return {};
    }
    const size_t part = options_.cut_tensors ? part_of(tensor) : tensor.count;
    const size_t parts = (tensor.count + part - 1) / part;
    if (parts > kMaxParts) {
      return Status(Code::kInvalidArgument, fmt::format("buckets of {} bytes would cut tensor {} into {}, more than {}",
                                                        options_.target_bytes, tensor.name, parts, kMaxParts));
    }
    placements_.push_back({.bucket = static_cast<uint32_t>(used_.size()),
                           .offset = 0,
                           .count = tensor.count,
                           .bucket_count = static_cast<uint32_t>(parts)});
    for (size_t begin = 0; begin < tensor.count; begin += part) {
      add_bucket(tensor.dtype, std::min(part, tensor.count - begin));
    }
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
  // Places the tensor in the open bucket of its dtype, or opens a new one. Buckets of larger tensors leave it open.
  void pack(const TensorSpec& tensor) {
    const size_t element_bytes = size_of(tensor.dtype);
    size_t& open = open_[static_cast<size_t>(tensor.dtype)];
    size_t offset = open == kNoBucket ? 0 : round_up(used_[open], alignment(element_bytes));
    const bool full = open != kNoBucket && options_.target_bytes != 0 &&
                      padded(offset + tensor.count, element_bytes) > options_.target_bytes;
    if (open == kNoBucket || full) {
      open = add_bucket(tensor.dtype, 0);
      offset = 0;
    }
    used_[open] = offset + tensor.count;
    placements_.push_back({.bucket = static_cast<uint32_t>(open), .offset = offset, .count = tensor.count});
  }

  size_t add_bucket(DType dtype, size_t used) {
    used_.push_back(used);
    dtypes_.push_back(dtype);
    return used_.size() - 1;
  }

  // Elements of each bucket that a tensor is cut into. They divide into equal, aligned shards, so that there is no
  // padding between one part and the next.
  size_t part_of(const TensorSpec& tensor) const {
    const size_t element_bytes = size_of(tensor.dtype);
    const size_t unit = ranks_ * alignment(element_bytes);
    const size_t most = std::max(unit, options_.target_bytes / element_bytes / unit * unit);
    const size_t row = std::max<size_t>(1, tensor.row_elements);
    const size_t row_step = unit / std::gcd(row, unit);  // so many rows divide evenly
    if (row > most / row_step) return most;
    return most / (row * row_step) * (row * row_step);
  }

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
  print.add(options.cut_tensors ? 1 : 0);
  for (const TensorSpec& tensor : tensors) {
    print.add(tensor.name);
    print.add(tensor.count);
    print.add(static_cast<uint64_t>(tensor.dtype));
    print.add(tensor.row_elements);
  }
  for (const BucketLayout& bucket : buckets) print.add(bucket.shard_count);
  for (const Placement& placement : placements) {
    print.add(placement.bucket);
    print.add(placement.offset);
    print.add(placement.bucket_count);
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
