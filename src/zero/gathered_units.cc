#include "zero/gathered_units.h"

#include <algorithm>
#include <limits>

namespace shardcomm::zero {
namespace {

size_t bytes_of(const Layout& layout, const std::vector<UnitId>& units) {
  size_t bytes = 0;
  for (const UnitId id : units) bytes += layout.units[id].value_bytes;
  return bytes;
}

// The most that two units need at once, tied ones with their owners, so that the next gather always fits beside the
// current.
size_t two_largest_units(const Layout& layout) {
  size_t largest = 0;
  for (size_t i = 0; i < layout.units.size(); ++i) {
    const std::vector<UnitId>& needs = layout.units[i].needs;
    const size_t own = bytes_of(layout, needs);
    for (size_t j = i; j < layout.units.size(); ++j) {
      size_t bytes = own;
      for (const UnitId id : layout.units[j].needs) {
        bytes += std::find(needs.begin(), needs.end(), id) != needs.end() ? 0 : layout.units[id].value_bytes;
      }
      largest = std::max(largest, bytes);
    }
  }
  return largest;
}

size_t limit_of(const Layout& layout, const ZeroOptions& options) {
  if (!options.free_after_forward) return std::numeric_limits<size_t>::max();  // all units end up gathered anyway
  return options.gathered_bytes_limit != 0 ? options.gathered_bytes_limit : two_largest_units(layout);
}

// A limit below what one unit needs cannot be kept.
size_t arena_capacity(const Layout& layout, const ZeroOptions& options) {
  if (!layout.stage.shards_values) return 0;
  size_t largest = 0;
  for (const UnitLayout& unit : layout.units) largest = std::max(largest, bytes_of(layout, unit.needs));
  return std::min(layout.total(&UnitLayout::value_bytes), std::max(limit_of(layout, options), largest));
}

}  // namespace

GatheredUnits::GatheredUnits(const Layout& layout, const ZeroOptions& options)
    : layout_(layout),
      keeps_all_(!options.free_after_forward),
      limit_bytes_(limit_of(layout, options)),
      arena_(arena_capacity(layout, options)),
      states_(layout.units.size()) {}

bool GatheredUnits::is_whole(UnitId unit) const noexcept {
  const size_t count = layout_.units[unit].value_transfers.size();
  return count > 0 && states_[unit].count == count;
}

bool GatheredUnits::fits_limit(size_t more_bytes) const noexcept {
  return bytes_ <= limit_bytes_ && more_bytes <= limit_bytes_ - bytes_;
}

// A unit at the bottom is gathered from its first transfer on, any other from its last one on. So a part of a unit lies
// at an edge, and the rest is missing in the middle, where there is room when the unit at the other edge is freed.
bool GatheredUnits::place(UnitId unit) {
  State& state = states_[unit];
  const size_t bytes = layout_.units[unit].value_bytes;
  if (bytes == 0) return true;
  if (keeps_all_) {
    state.offset = 0;
    for (UnitId id = 0; id < unit; ++id) *state.offset += layout_.units[id].value_bytes;
    return true;
  }
  if (is_begun(unit)) {
    return state.offset && arena_.is_free(*state.offset + (state.from_top ? 0 : state.bytes), missing_bytes(unit));
  }
  state.offset = arena_.find(bytes);
  state.from_top = state.offset && *state.offset > 0;
  return state.offset.has_value();
}

bool GatheredUnits::place_at_edge(UnitId unit) {
  State& state = states_[unit];
  const size_t bytes = layout_.units[unit].value_bytes;
  if (bytes > arena_.capacity()) return false;
  state.from_top = arena_.top_gap_bytes() > arena_.bottom_gap_bytes();
  state.offset = state.from_top ? arena_.capacity() - bytes : 0;
  return true;
}

uint32_t GatheredUnits::next_transfer(UnitId unit) const noexcept {
  const State& state = states_[unit];
  const size_t count = layout_.units[unit].value_transfers.size();
  return static_cast<uint32_t>(state.from_top ? count - 1 - state.count : state.count);
}

bool GatheredUnits::has_block(UnitId unit, const Transfer& transfer) const noexcept {
  return !keeps_all_ && states_[unit].offset && transfer.bytes > 0;
}

uint32_t GatheredUnits::take_next(UnitId unit) {
  State& state = states_[unit];
  const uint32_t next = next_transfer(unit);
  const Transfer& transfer = layout_.units[unit].value_transfers[next];
  if (has_block(unit, transfer)) arena_.take(*state.offset + transfer.begin_bytes, transfer.bytes);
  ++state.count;
  state.bytes += transfer.bytes;
  bytes_ += transfer.bytes;
  return next;
}

std::optional<uint32_t> GatheredUnits::take_next_if_it_fits(UnitId unit) {
  const Transfer& next = layout_.units[unit].value_transfers[next_transfer(unit)];
  if (!fits_limit(next.bytes)) return std::nullopt;
  if (has_block(unit, next) && !arena_.is_free(*states_[unit].offset + next.begin_bytes, next.bytes)) {
    return std::nullopt;
  }
  return take_next(unit);
}

void GatheredUnits::release(UnitId unit) {
  State& state = states_[unit];
  const std::vector<Transfer>& transfers = layout_.units[unit].value_transfers;
  const size_t first = state.from_top ? transfers.size() - state.count : 0;
  for (size_t i = first; i < first + state.count; ++i) {
    if (has_block(unit, transfers[i])) arena_.release(*state.offset + transfers[i].begin_bytes);
  }
  bytes_ -= state.bytes;
  state = {};
}

}  // namespace shardcomm::zero
