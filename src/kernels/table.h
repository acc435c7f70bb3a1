// Walking a table of segments, alone or with a team. What a segment is made of are units (bytes, elements); parts are
// cut at multiples of kCut units of the whole table laid end to end, so that two threads seldom write to one page.
#pragma once
#include <algorithm>
#include <cstddef>
#include <span>

#include "device/device.h"

namespace shardcomm::kernels {

template <class Segment, class UnitsOf>
size_t total(std::span<const Segment> segments, const UnitsOf& units_of) {
  size_t units = 0;
  for (const Segment& segment : segments) units += units_of(segment);
  return units;
}

// Calls part(segments, skipped, units) for parts of the table of `units`, which the team's threads take where it is
// large: so many units, from the `skipped`-th of the first segment on. No part is empty.
template <class Segment, class UnitsOf, class Part>
void share(std::span<const Segment> segments, const UnitsOf& units_of, size_t units, size_t unit_bytes, HostTeam* team,
           const Part& part) {
  constexpr size_t kCut = 4096;
  const auto take = [&](size_t begin, size_t end) {
    size_t first = 0, before = 0;
    while (begin < end && before + units_of(segments[first]) <= begin) before += units_of(segments[first++]);
    if (begin < end) part(segments.subspan(first), begin - before, end - begin);
  };
  const int parts = team == nullptr ? 1 : team->parts_for(units * unit_bytes);
  if (parts == 1) return take(0, units);
  const auto cut = [&](int i) {
    return i == parts ? units : units / static_cast<size_t>(parts) * static_cast<size_t>(i) / kCut * kCut;
  };
  team->run(parts, [&](int i) { take(cut(i), cut(i + 1)); });
}

}  // namespace shardcomm::kernels
