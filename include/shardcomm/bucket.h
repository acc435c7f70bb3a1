// A BucketPlan packs many tensors into few flat, padded buckets; it is a pure function of its arguments, so every rank
// computes the same one. A Bucket is one of them given memory that peers can read.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/communicator.h"

namespace shardcomm {

struct TensorSpec {
  std::string name;
  size_t count;  // elements
  DType dtype;
  size_t row_elements = 1;  // of a row; a tensor that is cut is cut between rows, if it can be
};
struct BucketOptions {
  size_t target_bytes = size_t{64} << 20;  // of a full bucket; a larger tensor shares none; 0: no limit
  size_t align_bytes = 128;                // of each tensor in its bucket, and of each shard
  // false: a tensor larger than target_bytes has one bucket, however large. true: it is cut into consecutive buckets of
  // its own. All of them but the last are equal and without padding, so the tensor is contiguous where their full views
  // lie one behind the other. Cuts are between rows; if target_bytes does not hold a number of rows that divides evenly
  // among the ranks, they are at multiples of the alignment. A bucket then exceeds target_bytes only if that is less
  // than one alignment per rank.
  bool cut_tensors = false;
};
struct BucketLayout {
  DType dtype;
  size_t shard_count;  // elements
  size_t full_count;   // shard_count * world_size, padding included
};
struct Placement {
  uint32_t bucket;
  size_t offset;  // elements from the start of the bucket's full view
  size_t count;
  uint32_t bucket_count = 1;  // the tensor continues in the buckets that follow, as if their full views were one
};

class SHARDCOMM_EXPORT BucketPlan {
 public:
  // Tensors keep their order within a bucket; a bucket holds one dtype. kInvalidArgument for a world_size below 1, an
  // alignment that is not a power of two, or a target that would cut a tensor into more than 2^20 buckets.
  static Result<BucketPlan> make(std::span<const TensorSpec> tensors, int world_size, const BucketOptions& options);
  std::span<const BucketLayout> buckets() const noexcept;
  std::span<const Placement> placements() const noexcept;  // one per tensor, in the order given
  int world_size() const noexcept;
  uint64_t fingerprint() const noexcept;  // of the arguments and the result; compared across ranks before first use

 private:
  struct Rep;
  std::shared_ptr<const Rep> rep_;
};

class SHARDCOMM_EXPORT Bucket {
 public:
  static Result<Bucket> create(Communicator& comm, const BucketLayout& layout, std::string_view label);  // collective
  Bucket(Bucket&&) noexcept;
  Bucket& operator=(Bucket&&) noexcept;
  ~Bucket();
  const BucketLayout& layout() const noexcept;
  std::byte* full() const noexcept;   // every shard, in rank order
  std::byte* shard() const noexcept;  // this rank's part of full()

  struct Impl;

 private:
  friend class Communicator;
  explicit Bucket(std::unique_ptr<Impl>) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardcomm
