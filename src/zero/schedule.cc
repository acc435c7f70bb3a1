#include "zero/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace shardcomm::zero {
namespace {

using Kind = Action::Kind;

bool contains(const std::vector<UnitId>& ids, UnitId id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

std::string_view text(Pass pass) { return pass == Pass::kForward ? "forward" : "backward"; }

constexpr size_t kNever = std::numeric_limits<size_t>::max();
// Reductions that keep their memory: one runs and one waits. Older ones give it back, each with its own event.
constexpr size_t kMostInFlight = 2;

}  // namespace

Schedule::Schedule(const Layout& layout, const ZeroOptions& options, size_t gradient_capacity)
    : layout_(layout),
      options_(options),
      gathers_(layout.stage.shards_values),
      gathered_(layout, options),
      gradient_arena_(layout.stage.shards_gradients ? gradient_capacity : 0),
      states_(layout.units.size()),
      order_(layout.units.size()) {
  for (const UnitLayout& unit : layout.units) {
    for (const UnitId owner : unit.contributes) ++states_[owner].gradient_uses;
  }
}

Status Schedule::before(UnitId unit, Pass pass, std::vector<Action>& actions) {
  if (unit >= states_.size()) {
    return Status(Code::kInvalidArgument, fmt::format("before: unit {} of {}", unit, states_.size()));
  }
  State& state = states_[unit];
  if (state.entered) {
    return Status(Code::kFailedPrecondition,
                  fmt::format("before({}): it is already open, in {}", layout_.units[unit].name, text(state.pass)));
  }
  state.entered = true;
  state.pass = pass;
  order_.enter({unit, pass});
  const UnitLayout& layout = layout_.units[unit];
  for (const UnitId id : layout.needs) ++states_[id].users;
  if (gathers_) {
    gather_needs(unit, actions);
    for (size_t i = 0; i < static_cast<size_t>(options_.prefetch_units); ++i) {
      const auto use = order_.ahead(i);
      if (!use || !gather_ahead(use->unit, actions)) break;
    }
  }
  for (const UnitId id : layout.needs) actions.push_back({Kind::kJoin, id});
  if (pass == Pass::kBackward) {
    for (const UnitId id : layout.contributes) open_gradients(id, actions);
  }
  return {};
}

Status Schedule::after(UnitId unit, Pass pass, bool sync, std::vector<Action>& actions) {
  if (unit >= states_.size()) {
    return Status(Code::kInvalidArgument, fmt::format("after: unit {} of {}", unit, states_.size()));
  }
  State& state = states_[unit];
  const UnitLayout& layout = layout_.units[unit];
  if (!state.entered || state.pass != pass) {
    return Status(Code::kFailedPrecondition, fmt::format("after({}, {}): it is {}", layout.name, text(pass),
                                                         state.entered ? "open in the other pass" : "not open"));
  }
  state.entered = false;
  for (const UnitId id : layout.needs) {
    if (--states_[id].users == 0 && gathered_.is_begun(id) && !keep_after(id)) free(id, actions);
  }
  // The next unit's missing transfers are gathered before the reductions, which nothing waits for.
  if (gathers_ && options_.prefetch_units > 0) {
    if (const auto use = order_.ahead(0)) gather_ahead(use->unit, actions);
  }
  if (pass == Pass::kForward) return {};
  for (const UnitId id : layout.contributes) {
    State& owner = states_[id];
    if (!owner.gradient || --owner.gradient_uses_left > 0) continue;
    if (sync) {
      reduce(id, actions);
    } else {
      owner.gradient_uses_left = owner.gradient_uses;
    }
  }
  return {};
}

Status Schedule::finish(bool sync, std::vector<Action>& actions) {
  if (const std::string open = open_unit(); !open.empty()) {
    return Status(Code::kFailedPrecondition,
                  fmt::format("finish_step: unit {} is still between before and after", open));
  }
  drop_gathered(actions);
  for (UnitId id = 0; id < states_.size(); ++id) {
    if (!states_[id].gradient) continue;
    states_[id].gradient_uses_left = states_[id].gradient_uses;
    if (sync) reduce(id, actions);
  }
  while (!in_flight_.empty()) retire_oldest(actions);
  order_.finish();
  return {};
}

void Schedule::discard_gradients(std::vector<Action>& actions) {
  for (UnitId id = 0; id < states_.size(); ++id) {
    State& state = states_[id];
    if (!state.gradient) continue;
    state.gradient = false;
    for (const Transfer& transfer : layout_.units[id].gradient_transfers) {
      if (state.gradient_offset) gradient_arena_.release(*state.gradient_offset + transfer.begin_bytes);
    }
    actions.push_back({Kind::kDiscard, id});
  }
}

void Schedule::drop_gathered(std::vector<Action>& actions) {
  for (UnitId id = 0; id < states_.size(); ++id) {
    if (gathered_.is_begun(id) && states_[id].users == 0) free(id, actions);
  }
}

std::string Schedule::open_unit() const {
  for (size_t id = 0; id < states_.size(); ++id) {
    if (states_[id].entered) return layout_.units[id].name;
  }
  return {};
}

std::string Schedule::unreduced_unit() const {
  for (size_t id = 0; id < states_.size(); ++id) {
    if (states_[id].gradient) return layout_.units[id].name;
  }
  return {};
}

// How many uses from now; kNever when none is expected.
size_t Schedule::next_use(UnitId unit) const {
  for (size_t i = 0;; ++i) {
    const auto use = order_.ahead(i);
    if (!use) return kNever;
    if (contains(layout_.units[use->unit].needs, unit)) return i;
  }
}

// Freeing what the next use gathers again would be a gather for nothing: the last unit of forward is the first of
// backward. The same goes for what prefetch would gather again at once, if it leaves room for all that is needed
// before.
bool Schedule::keep_after(UnitId unit) const {
  const size_t next = next_use(unit);
  if (next == kNever) return false;
  if (!options_.free_after_forward || next == 0) return true;
  if (next > static_cast<size_t>(options_.prefetch_units)) return false;
  std::vector<UnitId> sooner;
  size_t bytes = 0;
  for (size_t i = 0; i < next; ++i) {
    for (const UnitId id : layout_.units[order_.ahead(i)->unit].needs) {
      if (contains(sooner, id)) continue;
      sooner.push_back(id);
      bytes += gathered_.missing_bytes(id);
    }
  }
  return gathered_.fits_limit(bytes);
}

// Evicts units gathered for uses that did not happen or are further away.
void Schedule::gather_needs(UnitId unit, std::vector<Action>& actions) {
  const std::vector<UnitId>& needs = layout_.units[unit].needs;
  size_t missing = 0;
  for (const UnitId id : needs) missing += gathered_.missing_bytes(id);
  while (missing > 0 && !gathered_.fits_limit(missing) && evict_one(actions)) continue;
  for (const UnitId id : needs) {
    if (gathered_.is_whole(id)) continue;
    bool placed = gathered_.place(id);
    while (!placed && evict_one(actions)) placed = gathered_.place(id);
    if (!placed && gathered_.is_begun(id)) {  // nested units have taken the place of its rest
      free(id, actions);
      static_cast<void>(gathered_.place(id));
    }
    while (!gathered_.is_whole(id)) actions.push_back({Kind::kGather, id, gathered_.take_next(id)});
  }
}

// Gathers as much of what the unit needs as the limit and the arena hold. Returns whether that is all of it.
bool Schedule::gather_ahead(UnitId unit, std::vector<Action>& actions) {
  for (const UnitId id : layout_.units[unit].needs) {
    if (gathered_.is_whole(id)) continue;
    if (!gathered_.is_begun(id) && !gathered_.place(id) && !gathered_.place_at_edge(id)) return false;
    while (!gathered_.is_whole(id)) {
      const auto next = gathered_.take_next_if_it_fits(id);
      if (!next) return false;
      actions.push_back({Kind::kGather, id, *next});
    }
  }
  return true;
}

// Frees the gathered unit that nobody uses and that is needed last; false when there is none.
bool Schedule::evict_one(std::vector<Action>& actions) {
  std::optional<UnitId> victim;
  size_t victim_use = 0;
  for (UnitId id = 0; id < states_.size(); ++id) {
    if (!gathered_.is_begun(id) || states_[id].users > 0) continue;
    const size_t use = next_use(id);
    if (!victim || use > victim_use) {
      victim = id;
      victim_use = use;
    }
  }
  if (victim) free(*victim, actions);
  return victim.has_value();
}

void Schedule::free(UnitId unit, std::vector<Action>& actions) {
  gathered_.release(unit);
  actions.push_back({Kind::kFree, unit});
}

// The reductions of one unit may be in flight behind the unit that computes; older ones have had that unit's time.
void Schedule::open_gradients(UnitId unit, std::vector<Action>& actions) {
  State& state = states_[unit];
  if (state.gradient) return;
  const auto is_of_unit = [&](const Reduction& reduction) { return reduction.unit == unit; };
  while (std::any_of(in_flight_.begin(), in_flight_.end(), is_of_unit)) retire_oldest(actions);
  while (!in_flight_.empty() && in_flight_.front().unit != in_flight_.back().unit) retire_oldest(actions);
  state.gradient = true;
  state.gradient_uses_left = state.gradient_uses;
  state.gradient_offset = gradient_arena_.find(layout_.units[unit].gradient_bytes);
  for (const Transfer& transfer : layout_.units[unit].gradient_transfers) {
    if (state.gradient_offset) gradient_arena_.take(*state.gradient_offset + transfer.begin_bytes, transfer.bytes);
  }
  actions.push_back({Kind::kOpen, unit});
}

// Reduces from the middle of the arena outwards: the transfers that remain in flight lie at its edge, and the unit that
// opens next finds the rest in one piece.
void Schedule::reduce(UnitId unit, std::vector<Action>& actions) {
  states_[unit].gradient = false;
  const auto count = static_cast<uint32_t>(layout_.units[unit].gradient_transfers.size());
  const bool downwards = states_[unit].gradient_offset == 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t transfer = downwards ? count - 1 - i : i;
    if (in_flight_.size() == kMostInFlight) retire_oldest(actions);
    in_flight_.push_back({unit, transfer});
    actions.push_back({Kind::kReduce, unit, transfer});
  }
}

void Schedule::retire_oldest(std::vector<Action>& actions) {
  const auto [unit, transfer] = in_flight_.front();
  in_flight_.pop_front();
  if (const auto offset = states_[unit].gradient_offset) {
    gradient_arena_.release(*offset + layout_.units[unit].gradient_transfers[transfer].begin_bytes);
  }
  actions.push_back({Kind::kRetire, unit, transfer});
}

}  // namespace shardcomm::zero
