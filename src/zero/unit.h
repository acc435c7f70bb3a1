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

// One parameter as its unit sees it. A tied one lies in its owner's buckets.
struct ParameterPlace {
  UnitId owner;              // the unit whose bucket holds it
  uint32_t owner_parameter;  // its index there
  uint32_t bucket;           // of the owner
  size_t offset;             // elements from the start of that bucket
  size_t count;
  DType dtype;
  bool trainable;
  bool tied;
};

// All offsets are multiples of kAlignBytes. A mosaic's shards are whole pages.
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
};

struct UnitLayout {
  std::string name;
  std::vector<ParameterPlace> parameters;
  std::vector<UnitBucket> buckets;  // trainable ones first
  size_t shard_bytes = 0;           // of its values, one rank's part
  size_t mosaic_bytes = 0;          // the same, of what is read in mosaics
  size_t value_bytes = 0;           // of its values, whole; without what is read in mosaics
  size_t gradient_bytes = 0;        // of its whole gradients, in gradient_dtype
  std::vector<UnitId> needs;        // units whose values it reads: itself, if it has any, and the owners of tied ones
  std::vector<UnitId> contributes;  // units whose gradients it adds to
};

inline constexpr size_t kAlignBytes = 128;

struct Layout {
  std::vector<UnitLayout> units;
  int world_size = 1;
  StageTraits stage = traits_of(3);
  DType gradient_dtype = DType::kF32;
  size_t parameter_count = 0;  // elements, each tied parameter once
  uint64_t fingerprint = 0;    // of the specs and everything above

  size_t total(size_t UnitLayout::*member) const noexcept;
  const UnitBucket& bucket_of(const ParameterPlace& place) const noexcept {
    return units[place.owner].buckets[place.bucket];
  }
};

// kInvalidArgument names the unit and parameter that cannot be.
Result<Layout> make_layout(std::span<const UnitSpec> units, int world_size, const ZeroOptions& options);

// A run of consecutive elements of one parameter, and where it begins in its bucket.
struct Run {
  size_t parameter_offset;
  size_t bucket_offset;
  size_t count;
};
// The part of a parameter that lies in the shard of `rank`; nothing where it has none.
std::optional<Run> shard_run(const ParameterPlace& place, const UnitBucket& bucket, Rank rank) noexcept;

// "unit.parameter"
std::string full_name(const UnitSpec& unit, uint32_t parameter);

// What a collective on a unit is called: "gather h.3". A name that is too long keeps its end, which tells blocks apart.
std::string collective_label(std::string_view verb, std::string_view unit);

}  // namespace shardcomm::zero
