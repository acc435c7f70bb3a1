// The state machine of the units, without memory, threads or communication: hooks go in, actions come out. The engine
// carries the actions out; the estimate counts them. See README.md for the picture.
#pragma once
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "shardcomm/zero.h"
#include "zero/arena.h"
#include "zero/gathered_units.h"
#include "zero/unit.h"
#include "zero/unit_order.h"

namespace shardcomm::zero {

struct Action {
  enum class Kind : uint8_t {
    kGather,   // start gathering one transfer of the unit's values
    kJoin,     // compute continues when all of its values are there
    kFree,     // its gathered values are no longer needed
    kOpen,     // its whole gradients exist from here on, as zeros
    kReduce,   // start reducing one transfer of its whole gradients into the shards
    kRetire,   // the memory of one transfer is no longer needed once its reduction is done
    kDiscard,  // its whole gradients are no longer needed, and are not reduced
  };
  Kind kind;
  UnitId unit;
  uint32_t transfer = 0;  // of kGather: in value_transfers; of kReduce and kRetire: in gradient_transfers
  bool operator==(const Action&) const = default;
};

// Equal calls give equal actions, so that all ranks issue the same collectives. Not thread-safe.
class Schedule {
 public:
  // gradient_capacity: bytes in which whole gradients are placed (stages 2 and 3).
  Schedule(const Layout& layout, const ZeroOptions& options, size_t gradient_capacity);

  // Each checks first and changes nothing when it fails. `actions` are to be carried out in order.
  Status before(UnitId unit, Pass pass, std::vector<Action>& actions);
  Status after(UnitId unit, Pass pass, bool sync, std::vector<Action>& actions);
  Status finish(bool sync, std::vector<Action>& actions);
  // Drops whole gradients that were never reduced.
  void discard_gradients(std::vector<Action>& actions);
  // Frees what is gathered ahead of its use, because the values are about to change.
  void drop_gathered(std::vector<Action>& actions);

  // All transfers of the unit's values are gathered or on the way; or some of them are.
  bool is_gathered(UnitId unit) const noexcept { return gathered_.is_whole(unit); }
  bool is_partly_gathered(UnitId unit) const noexcept { return gathered_.is_begun(unit); }
  // Where a gathered unit's values are to lie in memory of gathered_capacity() bytes; nothing: it needs
  // none, or that memory has no room, which only nested units can bring about.
  std::optional<size_t> gathered_offset(UnitId unit) const noexcept { return gathered_.offset(unit); }
  size_t gathered_capacity() const noexcept { return gathered_.capacity(); }
  // The place of an open unit's whole gradients in memory of gradient_capacity bytes; nothing if that memory has no
  // room, which only an order other than the declared one can bring about.
  std::optional<size_t> gradient_offset(UnitId unit) const noexcept { return states_[unit].gradient_offset; }
  // "" when no unit is between before() and after(), else its name.
  std::string open_unit() const;
  // "" when no unit holds whole gradients that were never reduced, else its name.
  std::string unreduced_unit() const;

 private:
  struct State {
    bool entered = false;  // between before() and after()
    Pass pass = Pass::kForward;
    int users = 0;               // entered units that read its values
    bool gradient = false;       // whole gradients are open
    int gradient_uses_left = 0;  // in this backward pass, before they are complete
    int gradient_uses = 0;       // in every backward pass
    std::optional<size_t> gradient_offset;
  };
  struct Reduction {
    UnitId unit;
    uint32_t transfer;
  };

  size_t next_use(UnitId unit) const;
  bool keep_after(UnitId unit) const;
  void gather_needs(UnitId unit, std::vector<Action>& actions);
  bool gather_ahead(UnitId unit, std::vector<Action>& actions);
  bool evict_one(std::vector<Action>& actions);
  void free(UnitId unit, std::vector<Action>& actions);
  void open_gradients(UnitId unit, std::vector<Action>& actions);
  void reduce(UnitId unit, std::vector<Action>& actions);
  void retire_oldest(std::vector<Action>& actions);

  const Layout& layout_;
  const ZeroOptions options_;
  const bool gathers_;  // StageTraits::shards_values
  GatheredUnits gathered_;
  Arena gradient_arena_;  // of whole gradients
  std::vector<State> states_;
  std::deque<Reduction> in_flight_;  // reduced but not retired, oldest first
  UnitOrder order_;
};

}  // namespace shardcomm::zero
