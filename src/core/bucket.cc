// A bucket is a window of the size that its layout says.
#include "shardcomm/bucket.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "core/core.h"

namespace shardcomm {

struct Bucket::Impl {
  Window window;
  BucketLayout layout;
  Rank rank;
  std::optional<PreparedCall> gather = {}, reduction = {};  // once they have been called
  ReduceOp op = ReduceOp::kSum;                             // of the reduction
  std::weak_ptr<Core> owner = {};                           // the communicator whose calls they are

  // Forgets the calls of another communicator; it may have failed or gone, while this one has not.
  void use_with(const std::shared_ptr<Core>& core) {
    if (!owner.owner_before(core) && !core.owner_before(owner)) return;
    gather.reset();
    reduction.reset();
    owner = core;
  }
};

Bucket::Bucket(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Bucket::Bucket(Bucket&&) noexcept = default;
Bucket& Bucket::operator=(Bucket&&) noexcept = default;
Bucket::~Bucket() = default;
const BucketLayout& Bucket::layout() const noexcept { return impl_->layout; }
std::byte* Bucket::full() const noexcept { return impl_->window.data(); }

std::byte* Bucket::shard() const noexcept {
  return full() + static_cast<size_t>(impl_->rank) * impl_->layout.shard_count * size_of(impl_->layout.dtype);
}

Result<Bucket> Bucket::create(Communicator& comm, const BucketLayout& layout, std::string_view label) {
  if (!is_valid(layout.dtype)) {
    return Status(Code::kInvalidArgument, fmt::format("dtype {} of a bucket is none of 0 to {}",
                                                      static_cast<int>(layout.dtype), kDTypeCount - 1));
  }
  size_t whole = 0, bytes = 0;
  if (__builtin_mul_overflow(layout.shard_count, static_cast<size_t>(comm.size()), &whole) ||
      whole != layout.full_count) {
    return Status(Code::kInvalidArgument, fmt::format("a bucket of {} elements is not {} shards of {}",
                                                      layout.full_count, comm.size(), layout.shard_count));
  }
  if (__builtin_mul_overflow(whole, size_of(layout.dtype), &bytes)) {
    return Status(Code::kInvalidArgument, fmt::format("a bucket of {} elements is beyond the address space", whole));
  }
  SHARDCOMM_TRY_ASSIGN(Window window, comm.allocate_window(bytes, label));
  return Bucket(std::make_unique<Impl>(Impl{.window = std::move(window), .layout = layout, .rank = comm.rank()}));
}

Result<Work> Communicator::all_gather(Bucket& bucket, StreamRef stream) {
  bucket.impl_->use_with(impl_->core);
  auto& call = bucket.impl_->gather;
  if (!call) {
    const BucketLayout& layout = bucket.layout();
    const GatherItem item{bucket.shard(), bucket.full(), layout.shard_count, layout.dtype};
    SHARDCOMM_TRY_ASSIGN(call, prepare_gather({&item, 1}, bucket.impl_->window.label()));
  }
  return call->run(stream);
}

Result<Work> Communicator::reduce_scatter(Bucket& bucket, ReduceOp op, StreamRef stream) {
  bucket.impl_->use_with(impl_->core);
  auto& call = bucket.impl_->reduction;
  if (!call || op != bucket.impl_->op) {
    const BucketLayout& layout = bucket.layout();
    const ReduceItem item{bucket.full(), bucket.shard(), layout.shard_count, layout.dtype, op};
    SHARDCOMM_TRY_ASSIGN(call, prepare_reduce({&item, 1}, bucket.impl_->window.label()));
    bucket.impl_->op = op;
  }
  return call->run(stream);
}

}  // namespace shardcomm
