// From the caller's specs to places in buckets; every mistake in the specs is found here.
#include "zero/unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <set>

#include "base/call.h"
#include "base/hash.h"

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
    layout_.stage = traits_of(options.stage);
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
      tensors.push_back({full_name(specs_[id], place.owner_parameter), place.count, place.dtype});
      places.push_back(&place);
    }
    SHARDCOMM_TRY_ASSIGN(auto plan,
                         BucketPlan::make(tensors, layout_.world_size, {options_.bucket_bytes, kAlignBytes}));
    hash_.add(plan.fingerprint());
    const auto first = static_cast<uint32_t>(unit.buckets.size());
    for (const BucketLayout& bucket : plan.buckets()) {
      UnitBucket place{.dtype = bucket.dtype,
                       .trainable = trainable,
                       .shard_count = bucket.shard_count,
                       .full_count = bucket.full_count,
                       .shard_offset_bytes = unit.shard_bytes,
                       .full_offset_bytes = unit.value_bytes};
      if (options_.mosaic && layout_.stage.shards_values) make_mosaic(place);
      if (place.mosaic) {
        unit.mosaic_bytes += place.shard_bytes();
      } else {
        unit.shard_bytes += place.shard_bytes();
        unit.value_bytes += place.full_count * size_of(place.dtype);
      }
      if (trainable) {
        place.gradient_offset_bytes = unit.gradient_bytes;
        unit.gradient_bytes += round_up(place.full_count * size_of(layout_.gradient_dtype));
      }
      hash_.add(place.full_count);
      unit.buckets.push_back(place);
    }
    for (size_t i = 0; i < places.size(); ++i) {
      places[i]->bucket = first + plan.placements()[i].bucket;
      places[i]->offset = plan.placements()[i].offset;
    }
    return {};
  }

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

size_t Layout::total(size_t UnitLayout::*member) const noexcept {
  size_t sum = 0;
  for (const UnitLayout& unit : units) sum += unit.*member;
  return sum;
}

Result<Layout> make_layout(std::span<const UnitSpec> units, int world_size, const ZeroOptions& options) {
  if (world_size < 1) return Status(Code::kInvalidArgument, fmt::format("units for {} ranks", world_size));
  if (units.size() > std::numeric_limits<UnitId>::max()) return Status(Code::kInvalidArgument, "too many units");
  SHARDCOMM_TRY(check_options(options));
  LayoutBuilder builder(units, world_size, options);
  for (size_t id = 0; id < units.size(); ++id) SHARDCOMM_TRY(builder.add(static_cast<UnitId>(id)));
  return std::move(builder).finish();
}

std::optional<Run> shard_run(const ParameterPlace& place, const UnitBucket& bucket, Rank rank) noexcept {
  const size_t shard_begin = static_cast<size_t>(rank) * bucket.shard_count;
  const size_t begin = std::max(place.offset, shard_begin);
  const size_t end = std::min(place.offset + place.count, shard_begin + bucket.shard_count);
  if (begin >= end) return std::nullopt;
  return Run{begin - place.offset, begin, end - begin};
}

std::string full_name(const UnitSpec& unit, uint32_t parameter) {
  return unit.name + "." + unit.parameters[parameter].name;
}

std::string collective_label(std::string_view verb, std::string_view unit) {
  std::string label = fmt::format("{} {}", verb, unit);
  if (label.size() < kLabelBytes) return label;
  const size_t kept = kLabelBytes - 1 - verb.size() - 3;
  return fmt::format("{} ..{}", verb, unit.substr(unit.size() - kept));
}

}  // namespace shardcomm::zero
