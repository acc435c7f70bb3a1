// Sums, names and runs of elements, read off a layout.
#include <algorithm>

#include "zero/unit.h"

namespace shardcomm::zero {
namespace {

// The elements of a parameter in [begin, end) of one of its buckets, which begins at `bucket_begin`.
std::optional<Run> run_between(const ParameterPlace& place, size_t bucket_begin, size_t begin, size_t end) noexcept {
  begin = std::max(place.offset, bucket_begin + begin);
  end = std::min(place.offset + place.count, bucket_begin + end);
  if (begin >= end) return std::nullopt;
  return Run{.parameter_offset = begin - place.offset, .bucket_offset = begin - bucket_begin, .count = end - begin};
}

// Elements from the start of the parameter's first bucket to that of another. All but the last are equal.
size_t begin_of(const Layout& layout, const ParameterPlace& place, uint32_t bucket) noexcept {
  return (bucket - place.bucket) * layout.bucket(place, place.bucket).full_count;
}

}  // namespace

size_t Layout::total(size_t UnitLayout::*member) const noexcept {
  size_t sum = 0;
  for (const UnitLayout& unit : units) sum += unit.*member;
  return sum;
}

std::optional<Run> whole_run(const Layout& layout, const ParameterPlace& place, uint32_t bucket) noexcept {
  return run_between(place, begin_of(layout, place, bucket), 0, layout.bucket(place, bucket).full_count);
}

std::optional<Run> shard_run(const Layout& layout, const ParameterPlace& place, uint32_t bucket, Rank rank) noexcept {
  const size_t shard_count = layout.bucket(place, bucket).shard_count;
  const size_t begin = static_cast<size_t>(rank) * shard_count;
  return run_between(place, begin_of(layout, place, bucket), begin, begin + shard_count);
}

std::string full_name(const UnitSpec& unit, uint32_t parameter) {
  return unit.name + "." + unit.parameters[parameter].name;
}

}  // namespace shardcomm::zero
