// From the caller's specs to places in buckets; every mistake in the specs is found here.
#include "zero/unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <set>

#include "base/hash.h"
#include "zero/transfer.h"

namespace shardcomm::zero {
namespace {

constexpr size_t kMosaicPaddingPart = 8;  // at most an eighth of a mosaic is padding
constexpr uint64_t kMaxElements = uint64_t{1} << 56;

Status bad(std::string_view unit, std::string_view parameter, std::string_view why) {
  return Status(Code::kInvalidArgument, fmt::format("parameter {}.{} {}", unit, parameter, why));
}

std::optional<size_t> element_count(std::span<const size_t> shape) {
  uint64_t count = 1;
  for (const size_t extent : shape) {
    if (extent != 0 && count > kMaxElements / extent) return std::nullopt;
    count *= extent;
  }
  return static_cast<size_t>(count);
}

Status check_options(const ZeroOptions& options) {
  const auto bad_option = [](std::string_view name, auto value, std::string_view range) {
    return Status(Code::kInvalidArgument, fmt::format("ZeroOptions: {} is {}, not {}", name, value, range));
  };
  if (options.stage < 0 || options.stage > 3) return bad_option("stage", options.stage, "0, 1, 2 or 3");
  if (options.prefetch_units < 0) return bad_option("prefetch_units", options.prefetch_units, "0 or more");
  if (options.gradient_dtype != DType::kF32 && options.gradient_dtype != DType::kBF16) {
    return bad_option("gradient_dtype", name(options.gradient_dtype), "f32 or bf16");
  }
  return {};
}

// Builds the layout unit by unit, in the order of the specs.
class LayoutBuilder {
 public:
  // `options` have been checked.
  LayoutBuilder(std::span<const UnitSpec> units, int world_size, const ZeroOptions& options)
      : specs_(units), options_(options) {
    layout_.world_size = world_size;
    layout_.stage = traits_of(options.stage, world_size);
    layout_.gradient_dtype = options.gradient_dtype;
  }

  Status add(UnitId id) {
    const UnitSpec& spec = specs_[id];
    if (spec.name.empty()) return Status(Code::kInvalidArgument, fmt::format("unit {} has no name", id));
    if (!unit_names_.insert(spec.name).second) {
      return Status(Code::kInvalidArgument, fmt::format("two units are named {}", spec.name));
    }
    hash_.add(spec.name);
    UnitLayout unit;
    unit.name = spec.name;
    for (uint32_t p = 0; p < spec.parameters.size(); ++p) {
      SHARDCOMM_TRY_ASSIGN(auto place, declare(id, p));
      unit.parameters.push_back(place);
    }
    SHARDCOMM_TRY(pack(id, unit, true));
    SHARDCOMM_TRY(pack(id, unit, false));
    unit.value_transfers = divide_values(unit, options_.bucket_bytes);
    unit.gradient_transfers = divide_gradients(unit, options_.bucket_bytes);
    relate(id, unit);
    layout_.units.push_back(std::move(unit));
    return {};
  }

  Layout finish() && {
    layout_.fingerprint = hash_.value();
    return std::move(layout_);
  }

 private:
  struct Declared {
    UnitId owner;
    uint32_t owner_parameter;
    const ParameterSpec* spec;
  };

  // Checks one parameter. Of its place, bucket and offset are still open.
  Result<ParameterPlace> declare(UnitId id, uint32_t index) {
    const UnitSpec& unit = specs_[id];
    const ParameterSpec& spec = unit.parameters[index];
    if (spec.name.empty()) return bad(unit.name, fmt::format("{}", index), "has no name");
    if (spec.dtype != DType::kF32 && spec.dtype != DType::kBF16) {
      return bad(unit.name, spec.name, "is neither f32 nor bf16");
    }
    const auto count = element_count(spec.shape);
    if (!count) return bad(unit.name, spec.name, "has more elements than the address space");
    const std::string name = full_name(unit, index);
    // Its moments are stored beside it under these names, so they must be free too.
    for (const char* suffix : {"", "/m", "/v"}) {
      if (!taken_names_.insert(name + suffix).second) return bad(unit.name, spec.name, "has a name that is taken");
    }
    hash_parameter(name, spec);
    Declared declared{id, index, &spec};
    if (spec.tied_to.empty()) {
      layout_.parameter_count += *count;
    } else {
      SHARDCOMM_TRY_ASSIGN(declared, find_owner(unit, spec));
    }
    declared_.emplace(name, declared);
    return ParameterPlace{.owner = declared.owner,
                          .owner_parameter = declared.owner_parameter,
                          .bucket = 0,
                          .bucket_count = 1,
                          .offset = 0,
                          .count = *count,
                          .dtype = spec.dtype,
                          .trainable = spec.trainable,
                          .tied = !spec.tied_to.empty()};
  }

  Result<Declared> find_owner(const UnitSpec& unit, const ParameterSpec& spec) {
    const auto found = declared_.find(spec.tied_to);
    if (found == declared_.end()) {
      return bad(unit.name, spec.name, fmt::format("is tied to {}, which is not declared before it", spec.tied_to));
    }
    const ParameterSpec& owner = *found->second.spec;
    if (owner.shape != spec.shape || owner.dtype != spec.dtype || owner.trainable != spec.trainable) {
      return bad(unit.name, spec.name,
                 fmt::format("differs in shape, dtype or trainable from {}, to which it is tied", spec.tied_to));
    }
    return found->second;
  }

  // Frozen and trainable parameters have buckets of their own, so that the frozen ones need no gradient.
  Status pack(UnitId id, UnitLayout& unit, bool trainable) {
    std::vector<TensorSpec> tensors;
    std::vector<ParameterPlace*> places;
    for (ParameterPlace& place : unit.parameters) {
      if (place.tied || place.trainable != trainable) continue;
      const std::vector<size_t>& shape = specs_[id].parameters[place.owner_parameter].shape;
      tensors.push_back({.name = full_name(specs_[id], place.owner_parameter),
                         .count = place.count,
                         .dtype = place.dtype,
                         .row_elements = shape.empty() || place.count == 0 ? 1 : place.count / shape.front()});
      places.push_back(&place);
    }
    const BucketOptions bucket_options{
        .target_bytes = options_.bucket_bytes, .align_bytes = kAlignBytes, .cut_tensors = !reads_mosaics()};
    SHARDCOMM_TRY_ASSIGN(auto plan, BucketPlan::make(tensors, layout_.world_size, bucket_options));
    hash_.add(plan.fingerprint());
    const auto first = static_cast<uint32_t>(unit.buckets.size());
    std::vector<bool> continues(plan.buckets().size());  // the tensor of the bucket before it
    for (size_t i = 0; i < places.size(); ++i) {
      const Placement& placement = plan.placements()[i];
      places[i]->bucket = first + placement.bucket;
      places[i]->bucket_count = placement.bucket_count;
      places[i]->offset = placement.offset;
      for (uint32_t part = 1; part < placement.bucket_count; ++part) continues[placement.bucket + part] = true;
    }
    for (size_t b = 0; b < continues.size(); ++b) add_bucket(unit, plan.buckets()[b], trainable, continues[b]);
    unit.gradient_bytes = round_up(unit.gradient_bytes);
    return {};
  }

  void add_bucket(UnitLayout& unit, const BucketLayout& planned, bool trainable, bool continues) {
    UnitBucket bucket{.dtype = planned.dtype,
                      .trainable = trainable,
                      .shard_count = planned.shard_count,
                      .full_count = planned.full_count,
                      .shard_offset_bytes = unit.shard_bytes,
                      .full_offset_bytes = unit.value_bytes,
                      .gradient_offset_bytes = 0,
                      .mosaic = false};
    if (reads_mosaics()) make_mosaic(bucket);
    if (bucket.mosaic) {
      unit.mosaic_bytes += bucket.shard_bytes();
    } else {
      unit.shard_bytes += bucket.shard_bytes();
      unit.value_bytes += bucket.full_bytes();
    }
    if (trainable) {
      if (!continues) unit.gradient_bytes = round_up(unit.gradient_bytes);
      bucket.gradient_offset_bytes = unit.gradient_bytes;
      unit.gradient_bytes += bucket.full_count * size_of(layout_.gradient_dtype);
    }
    hash_.add(bucket.full_count);
    unit.buckets.push_back(bucket);
  }

  // A mosaic is contiguous only in itself.
  bool reads_mosaics() const noexcept { return options_.mosaic && layout_.stage.shards_values; }

  // Makes whole pages of the shards, unless that would add too much.
  void make_mosaic(UnitBucket& bucket) const {
    const size_t page = MosaicWindow::granularity_bytes();
    const size_t bytes = bucket.shard_bytes();
    const size_t whole_pages = (bytes + page - 1) / page * page;
    if (bytes == 0 || (whole_pages - bytes) * kMosaicPaddingPart > whole_pages) return;
    bucket.mosaic = true;
    bucket.shard_count = whole_pages / size_of(bucket.dtype);
    bucket.full_count = bucket.shard_count * static_cast<size_t>(layout_.world_size);
  }

  // Once the unit's own parameters have their places: those of the tied ones, and whom the unit touches.
  void relate(UnitId id, UnitLayout& unit) {
    if (unit.value_bytes + unit.mosaic_bytes > 0) unit.needs.push_back(id);
    if (unit.gradient_bytes > 0) unit.contributes.push_back(id);
    for (ParameterPlace& place : unit.parameters) {
      if (!place.tied) continue;
      place = (place.owner == id ? unit : layout_.units[place.owner]).parameters[place.owner_parameter];
      place.tied = true;
      if (place.count == 0) continue;
      add_once(unit.needs, place.owner);
      if (place.trainable) add_once(unit.contributes, place.owner);
    }
  }

  static void add_once(std::vector<UnitId>& ids, UnitId id) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  static size_t round_up(size_t bytes) { return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes; }

  void hash_parameter(const std::string& name, const ParameterSpec& spec) {
    hash_.add(name);
    hash_.add(spec.shape.size());
    for (const size_t extent : spec.shape) hash_.add(extent);
    hash_.add(static_cast<uint64_t>(spec.dtype));
    hash_.add(spec.trainable ? 1 : 0);
    hash_.add(std::bit_cast<uint32_t>(spec.decay_factor));
    hash_.add(spec.tied_to);
  }

  std::span<const UnitSpec> specs_;
  const ZeroOptions& options_;
  Layout layout_;
  std::set<std::string> unit_names_;
  std::set<std::string> taken_names_;
  std::map<std::string, Declared, std::less<>> declared_;
  WordHash hash_;
};

}  // namespace

Result<Layout> make_layout(std::span<const UnitSpec> units, int world_size, const ZeroOptions& options) {
  if (world_size < 1) return Status(Code::kInvalidArgument, fmt::format("units for {} ranks", world_size));
  if (units.size() > std::numeric_limits<UnitId>::max()) return Status(Code::kInvalidArgument, "too many units");
  SHARDCOMM_TRY(check_options(options));
  LayoutBuilder builder(units, world_size, options);
  for (size_t id = 0; id < units.size(); ++id) SHARDCOMM_TRY(builder.add(static_cast<UnitId>(id)));
  return std::move(builder).finish();
}

}  // namespace shardcomm::zero
