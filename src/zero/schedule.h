// The state machine of the units, without memory, threads or communication: hooks go in, actions come out. The engine
// carries the actions out; the estimate counts them. See README.md for the picture.
#pragma once
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "shardcomm/zero.h"
#include "zero/arena.h"
#include "zero/unit.h"
#include "zero/unit_order.h"

namespace shardcomm::zero {

struct Action {
  enum class Kind : uint8_t {
    kGather,   // start gathering the unit's values
    kJoin,     // compute continues when its values are there
    kFree,     // its gathered values are no longer needed
    kOpen,     // its whole gradients exist from here on, as zeros
    kReduce,   // start reducing its whole gradients into the shards
    kRetire,   // their memory is no longer needed once the reduction is done
    kDiscard,  // its whole gradients are no longer needed, and are not reduced
  };
  Kind kind;
  UnitId unit;
  bool operator==(const Action&) const = default;
};

// Equal calls give equal actions, so that all ranks issue the same collectives. Not thread-safe.
class Schedule {
 public:
  Schedule(const Layout& layout, const ZeroOptions& options);

  // Each checks first and changes nothing when it fails. `actions` are to be carried out in order.
  Status before(UnitId unit, Pass pass, std::vector<Action>& actions);
  Status after(UnitId unit, Pass pass, bool sync, std::vector<Action>& actions);
  Status finish(bool sync, std::vector<Action>& actions);
  // Drops whole gradients that were never reduced.
  void discard_gradients(std::vector<Action>& actions);
  // Frees what is gathered ahead of its use, because the values are about to change.
  void drop_gathered(std::vector<Action>& actions);

  bool is_gathered(UnitId unit) const noexcept { return states_[unit].gathered; }
  // Where a gathered unit's values are to lie in memory of gathered_capacity() bytes; nothing: it needs
  // none, or that memory has no room, which only nested units can bring about.
  std::optional<size_t> gathered_offset(UnitId unit) const noexcept { return states_[unit].offset; }
  size_t gathered_capacity() const noexcept { return arena_.capacity(); }
  // "" when no unit is between before() and after(), else its name.
  std::string open_unit() const;
  // "" when no unit holds whole gradients that were never reduced, else its name.
  std::string unreduced_unit() const;

 private:
  struct State {
    bool entered = false;  // between before() and after()
    Pass pass = Pass::kForward;
    bool gathered = false;  // or its gather is on the way
    std::optional<size_t> offset;
    int users = 0;               // entered units that read its values
    bool gradient = false;       // whole gradients are open
    int gradient_uses_left = 0;  // in this backward pass, before they are complete
    int gradient_uses = 0;       // in every backward pass
  };

  size_t missing_bytes(UnitId unit) const;
  bool fits_limit(size_t more_bytes) const noexcept;
  size_t next_use(UnitId unit) const;
  bool keep_after(UnitId unit) const;
  std::optional<size_t> place(UnitId unit);
  void gather(UnitId unit, std::optional<size_t> offset, std::vector<Action>& actions);
  void gather_needs(UnitId unit, std::vector<Action>& actions);
  bool gather_ahead(UnitId unit, std::vector<Action>& actions);
  bool evict_one(std::vector<Action>& actions);
  void free(UnitId unit, std::vector<Action>& actions);
  void open_gradients(UnitId unit, std::vector<Action>& actions);
  void reduce(UnitId unit, std::vector<Action>& actions);
  void retire_down_to(size_t in_flight, std::vector<Action>& actions);

  const Layout& layout_;
  const ZeroOptions options_;
  const bool gathers_;      // StageTraits::shards_values
  size_t limit_bytes_ = 0;  // of gathered values, for prefetch
  size_t gathered_bytes_ = 0;
  Arena arena_;  // of gathered values
  std::vector<State> states_;
  std::deque<UnitId> in_flight_;  // reduced but not retired, oldest first
  UnitOrder order_;
};

}  // namespace shardcomm::zero
