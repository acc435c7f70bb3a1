// Where every parameter of every unit lies: a pure function of the specs, the world size and the options, so that all
// ranks compute the same. Everything else in this folder reads it and changes none of it.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shardcomm/zero.h"
#include "zero/stage.h"

namespace shardcomm::zero {

// Consecutive indices, for range-based loops (clang 14 cannot compile std::views::iota of libstdc++ 12).
struct BucketIndices {
  struct Iterator {
    uint32_t index;
    uint32_t operator*() const noexcept { return index; }
    Iterator& operator++() noexcept { return ++index, *this; }
    bool operator==(const Iterator&) const = default;
  };
  uint32_t first, past_last;
  Iterator begin() const noexcept { return {first}; }
  Iterator end() const noexcept { return {past_last}; }
};

// One parameter as its unit sees it. A tied one lies in its owner's buckets.
struct ParameterPlace {
  UnitId owner;              // the unit whose buckets hold it
  uint32_t owner_parameter;  // its index there
  uint32_t bucket;           // of the owner: the first that holds it
  uint32_t bucket_count;     // more than one where it is cut; then it has them to itself
  size_t offset;             // elements from the start of the first bucket
  size_t count;
  DType dtype;
  bool trainable;
  bool tied;

  BucketIndices buckets() const noexcept { return {bucket, bucket + bucket_count}; }
};

// All offsets are multiples of kAlignBytes, except that the gradients of a cut parameter continue from one bucket to
// the next without a gap. A mosaic's shards are whole pages.
struct UnitBucket {
  DType dtype;
  bool trainable;
  size_t shard_count;
  size_t full_count;
  size_t shard_offset_bytes = 0;     // from the start of the unit's shards
  size_t full_offset_bytes = 0;      // from the start of the unit's whole values
  size_t gradient_offset_bytes = 0;  // from the start of the unit's whole gradients; trainable ones only
  bool mosaic = false;               // its values are read in all ranks' memory: it has no part in the two above

  size_t shard_bytes() const noexcept { return shard_count * size_of(dtype); }
  size_t full_bytes() const noexcept { return full_count * size_of(dtype); }
};

// A transfer is what one collective moves: consecutive buckets of a unit whose whole values together do not exceed
// bucket_bytes. Mostly it is one bucket; but a bucket holds one dtype, and trainable or frozen parameters only, so a
// unit may have several small ones. The transfers of a unit cover its whole values, or its whole gradients, without
// gaps.
struct Transfer {
  uint32_t first_bucket;
  uint32_t end_bucket;
  size_t begin_bytes;  // from the start of the unit's whole values or gradients
  size_t bytes;
};

struct UnitLayout {
  std::string name;
  std::vector<ParameterPlace> parameters;
  std::vector<UnitBucket> buckets;           // trainable ones first
  std::vector<Transfer> value_transfers;     // of all buckets, to be gathered
  std::vector<Transfer> gradient_transfers;  // of trainable buckets, to be reduced, and to be published when updated
  size_t shard_bytes = 0;                    // of its values, one rank's part
  size_t mosaic_bytes = 0;                   // the same, of what is read in mosaics
  size_t value_bytes = 0;                    // of its values, whole; without what is read in mosaics
  size_t gradient_bytes = 0;                 // of its whole gradients, in gradient_dtype
  std::vector<UnitId> needs;        // units whose values it reads: itself, if it has any, and the owners of tied ones
  std::vector<UnitId> contributes;  // units whose gradients it adds to

  std::span<const UnitBucket> buckets_of(const Transfer& transfer) const noexcept {
    return std::span(buckets).subspan(transfer.first_bucket, transfer.end_bucket - transfer.first_bucket);
  }
};

inline constexpr size_t kAlignBytes = 128;

struct Layout {
  std::vector<UnitLayout> units;
  int world_size = 1;
  StageTraits stage = traits_of(3, 2);
  DType gradient_dtype = DType::kF32;
  size_t parameter_count = 0;  // elements, each tied parameter once
  uint64_t fingerprint = 0;    // of the specs and everything above

  size_t total(size_t UnitLayout::*member) const noexcept;
  // `index` is one of place.buckets().
  const UnitBucket& bucket(const ParameterPlace& place, uint32_t index) const noexcept {
    return units[place.owner].buckets[index];
  }
};

// kInvalidArgument names the unit and parameter that cannot be.
Result<Layout> make_layout(std::span<const UnitSpec> units, int world_size, const ZeroOptions& options);

// A run of consecutive elements of one parameter in one bucket.
struct Run {
  size_t parameter_offset;
  size_t bucket_offset;
  size_t count;
};
// The part of a parameter that lies in one of its buckets, and the part of that in the shard of `rank`; nothing if it
// is empty.
std::optional<Run> whole_run(const Layout& layout, const ParameterPlace& place, uint32_t bucket) noexcept;
std::optional<Run> shard_run(const Layout& layout, const ParameterPlace& place, uint32_t bucket, Rank rank) noexcept;

// "unit.parameter"
std::string full_name(const UnitSpec& unit, uint32_t parameter);

}  // namespace shardcomm::zero
