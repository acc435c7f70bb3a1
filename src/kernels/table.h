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

// Calls piece(segment, offset, count), both in units, for what makes up the units [begin, end) of the table.
template <class Segment, class UnitsOf, class Piece>
void walk(std::span<const Segment> segments, const UnitsOf& units_of, size_t begin, size_t end, const Piece& piece) {
  size_t at = 0;
  for (const Segment& segment : segments) {
    const size_t units = units_of(segment);
    const size_t from = std::max(begin, at), to = std::min(end, at + units);
    if (from < to) piece(segment, from - at, to - from);
    at += units;
    if (at >= end) return;
  }
}

// The same for the whole table of `units`, in parts that the team's threads take where it is large.
template <class Segment, class UnitsOf, class Piece>
void share(std::span<const Segment> segments, const UnitsOf& units_of, size_t units, size_t unit_bytes, HostTeam* team,
           const Piece& piece) {
  constexpr size_t kCut = 4096;
  const int parts = team == nullptr ? 1 : team->parts_for(units * unit_bytes);
  if (parts == 1) return walk(segments, units_of, 0, units, piece);
  const auto cut = [&](int part) {
    return part == parts ? units : units / static_cast<size_t>(parts) * static_cast<size_t>(part) / kCut * kCut;
  };
  team->run(parts, [&](int part) { walk(segments, units_of, cut(part), cut(part + 1), piece); });
}

}  // namespace shardcomm::kernels
