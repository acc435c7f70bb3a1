// Which transfers of which units are gathered (or on the way), and where in the arena they lie. Pure, as the Schedule
// that decides with it.
#pragma once
#include <optional>
#include <vector>

#include "zero/arena.h"
#include "zero/unit.h"

namespace shardcomm::zero {

// Not thread-safe.
class GatheredUnits {
 public:
  GatheredUnits(const Layout& layout, const ZeroOptions& options);

  // All transfers of the unit; or some of them.
  bool is_whole(UnitId unit) const noexcept;
  bool is_begun(UnitId unit) const noexcept { return states_[unit].count > 0; }
  size_t missing_bytes(UnitId unit) const noexcept { return layout_.units[unit].value_bytes - states_[unit].bytes; }
  // Returns whether `more_bytes` stay within the limit for prefetch.
  bool fits_limit(size_t more_bytes) const noexcept;

  // Finds room for everything the unit lacks; transfers that are gathered stay where they are. False: there is none.
  bool place(UnitId unit);
  // The same for a unit that is not begun and of which only a part may have room: at the edge with the larger gap.
  bool place_at_edge(UnitId unit);
  // Gathers the next transfer and returns its index: in its place, or, if the unit has none, in memory of its own.
  uint32_t take_next(UnitId unit);
  // The same, if it is within the limit and its place is free.
  std::optional<uint32_t> take_next_if_it_fits(UnitId unit);
  void release(UnitId unit);

  // The place of all values of a unit that is begun; nothing if it needs no memory or has its own.
  std::optional<size_t> offset(UnitId unit) const noexcept { return states_[unit].offset; }
  size_t capacity() const noexcept { return arena_.capacity(); }

 private:
  struct State {
    size_t count = 0;  // gathered transfers: the first ones, or the last ones if from_top
    size_t bytes = 0;  // of them
    bool from_top = false;
    std::optional<size_t> offset;
  };
  uint32_t next_transfer(UnitId unit) const noexcept;
  bool has_block(UnitId unit, const Transfer& transfer) const noexcept;

  const Layout& layout_;
  const bool keeps_all_;  // until their last use: each unit has its own place, and there is no limit
  const size_t limit_bytes_;
  size_t bytes_ = 0;
  Arena arena_;
  std::vector<State> states_;
};

}  // namespace shardcomm::zero
