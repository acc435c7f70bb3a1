#include "zero/footprint.h"

namespace shardcomm::zero {
namespace {

size_t master_count_of(const UnitBucket& bucket, StageTraits stage) noexcept {
  return bucket.dtype == DType::kBF16 ? owned_count(bucket, stage) : 0;
}

template <class Count>
size_t sum_over_trainable(const Layout& layout, Count count) {
  size_t sum = 0;
  for (const UnitLayout& unit : layout.units) {
    for (const UnitBucket& bucket : unit.buckets) sum += bucket.trainable ? count(bucket) : 0;
  }
  return sum;
}

template <class Count>
BucketOffsets offsets_over_trainable(const Layout& layout, Count count) {
  BucketOffsets offsets;
  size_t next = 0;
  for (const UnitLayout& unit : layout.units) {
    std::vector<size_t>& of_unit = offsets.emplace_back();
    for (const UnitBucket& bucket : unit.buckets) {
      of_unit.push_back(next);
      next += bucket.trainable ? count(bucket) : 0;
    }
  }
  return offsets;
}

size_t peers(const Layout& layout) { return static_cast<size_t>(layout.world_size) - 1; }

}  // namespace

size_t owned_count(const UnitBucket& bucket, StageTraits stage) noexcept {
  return stage.shards_updates ? bucket.shard_count : bucket.full_count;
}
size_t owned_begin(const UnitBucket& bucket, StageTraits stage, size_t rank) noexcept {
  return stage.shards_updates ? rank * bucket.shard_count : 0;
}
size_t owned_trainable_count(const Layout& layout) noexcept {
  return sum_over_trainable(layout, [&](const UnitBucket& bucket) { return owned_count(bucket, layout.stage); });
}
size_t master_count(const Layout& layout) noexcept {
  return sum_over_trainable(layout, [&](const UnitBucket& bucket) { return master_count_of(bucket, layout.stage); });
}
BucketOffsets trainable_offsets(const Layout& layout) {
  return offsets_over_trainable(layout, [&](const UnitBucket& bucket) { return owned_count(bucket, layout.stage); });
}
BucketOffsets master_offsets(const Layout& layout) {
  return offsets_over_trainable(layout,
                                [&](const UnitBucket& bucket) { return master_count_of(bucket, layout.stage); });
}
bool sums_in_place(const Layout& layout) noexcept {
  return !layout.stage.shards_gradients && layout.gradient_dtype == DType::kF32;
}

Footprint footprint_of(const Layout& layout) noexcept {
  const size_t owned_bytes = owned_trainable_count(layout) * sizeof(float);
  return {
      .values_bytes = layout.total(layout.stage.shards_values ? &UnitLayout::shard_bytes : &UnitLayout::value_bytes),
      .mosaic_bytes = layout.total(&UnitLayout::mosaic_bytes),
      .whole_gradient_bytes = layout.stage.shards_gradients ? 0 : layout.total(&UnitLayout::gradient_bytes),
      .sum_bytes = sums_in_place(layout) ? 0 : owned_bytes,
      .master_bytes = master_count(layout) * sizeof(float),
      .moment_bytes = 2 * owned_bytes};
}

size_t gather_bytes_sent(const Layout& layout, UnitId unit, const Transfer& transfer) noexcept {
  size_t bytes = 0;
  for (const UnitBucket& bucket : layout.units[unit].buckets_of(transfer)) {
    bytes += bucket.mosaic ? 0 : bucket.shard_bytes();
  }
  return peers(layout) * bytes;
}
size_t reduce_bytes_sent(const Layout& layout, UnitId unit, const Transfer& transfer) noexcept {
  size_t count = 0;
  for (const UnitBucket& bucket : layout.units[unit].buckets_of(transfer)) count += bucket.shard_count;
  return peers(layout) * count * size_of(layout.gradient_dtype) * (layout.stage.shards_updates ? 1 : 2);
}
size_t publish_bytes_sent(const Layout& layout, UnitId unit) noexcept {
  if (!layout.stage.publishes()) return 0;
  size_t bytes = 0;
  for (const UnitBucket& bucket : layout.units[unit].buckets) bytes += bucket.trainable ? bucket.shard_bytes() : 0;
  return peers(layout) * bytes;
}

}  // namespace shardcomm::zero
