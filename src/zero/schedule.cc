#include "zero/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace shardcomm::zero {
namespace {

using Kind = Action::Kind;

bool contains(const std::vector<UnitId>& ids, UnitId id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

std::string_view text(Pass pass) { return pass == Pass::kForward ? "forward" : "backward"; }

// What any two units need at once, tied ones with their owners: so that the next gather always fits beside the current.
size_t two_largest_units(const Layout& layout) {
  size_t largest = 0;
  for (size_t i = 0; i < layout.units.size(); ++i) {
    for (size_t j = i; j < layout.units.size(); ++j) {
      size_t bytes = 0;
      for (const UnitId id : layout.units[i].needs) bytes += layout.units[id].value_bytes;
      for (const UnitId id : layout.units[j].needs) {
        if (!contains(layout.units[i].needs, id)) bytes += layout.units[id].value_bytes;
      }
      largest = std::max(largest, bytes);
    }
  }
  return largest;
}

}  // namespace

Schedule::Schedule(const Layout& layout, const ZeroOptions& options)
    : layout_(layout),
      options_(options),
      gathers_(options.stage == 3),
      states_(layout.units.size()),
      order_(layout.units.size()) {
  limit_bytes_ = options.gathered_bytes_limit != 0 ? options.gathered_bytes_limit : two_largest_units(layout);
  if (!options.free_after_forward)
    limit_bytes_ = std::numeric_limits<size_t>::max();  // all units end up gathered anyway
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
    make_room(unit, actions);
    for (const UnitId id : layout.needs) gather(id, actions);
    prefetch(actions);
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
    if (--states_[id].users == 0 && states_[id].gathered && !keep_after(id)) free(id, actions);
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
  retire_down_to(0, actions);
  order_.finish();
  return {};
}

void Schedule::discard_gradients(std::vector<Action>& actions) {
  for (UnitId id = 0; id < states_.size(); ++id) {
    if (!states_[id].gradient) continue;
    states_[id].gradient = false;
    actions.push_back({Kind::kDiscard, id});
  }
}

void Schedule::drop_gathered(std::vector<Action>& actions) {
  for (UnitId id = 0; id < states_.size(); ++id) {
    if (states_[id].gathered && states_[id].users == 0) free(id, actions);
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

size_t Schedule::missing_bytes(UnitId unit) const {
  size_t bytes = 0;
  for (const UnitId id : layout_.units[unit].needs) {
    if (!states_[id].gathered) bytes += layout_.units[id].value_bytes;
  }
  return bytes;
}

// Within the window that prefetch looks at.
bool Schedule::needed_soon(UnitId unit) const {
  for (size_t i = 0; i <= static_cast<size_t>(options_.prefetch_units); ++i) {
    const auto use = order_.ahead(i);
    if (!use) return false;
    if (contains(layout_.units[use->unit].needs, unit)) return true;
  }
  return false;
}

// Freeing what the next use gathers again would be a gather for nothing: the last unit of forward is the first of
// backward.
bool Schedule::keep_after(UnitId unit) const {
  if (!options_.free_after_forward) {
    for (size_t i = 0;; ++i) {
      const auto use = order_.ahead(i);
      if (!use) return false;
      if (contains(layout_.units[use->unit].needs, unit)) return true;
    }
  }
  const auto next = order_.ahead(0);
  if (!next) return false;
  if (contains(layout_.units[next->unit].needs, unit)) return true;
  return needed_soon(unit) && gathered_bytes_ + missing_bytes(next->unit) <= limit_bytes_;
}

void Schedule::gather(UnitId unit, std::vector<Action>& actions) {
  if (states_[unit].gathered) return;
  states_[unit].gathered = true;
  gathered_bytes_ += layout_.units[unit].value_bytes;
  actions.push_back({Kind::kGather, unit});
}

void Schedule::free(UnitId unit, std::vector<Action>& actions) {
  states_[unit].gathered = false;
  gathered_bytes_ -= layout_.units[unit].value_bytes;
  actions.push_back({Kind::kFree, unit});
}

// What was gathered for an order that did not come must not push the memory beyond the limit.
void Schedule::make_room(UnitId unit, std::vector<Action>& actions) {
  for (const bool even_soon : {false, true}) {
    for (UnitId id = 0; id < states_.size(); ++id) {
      if (missing_bytes(unit) == 0 || missing_bytes(unit) <= limit_bytes_ - std::min(limit_bytes_, gathered_bytes_))
        return;
      if (states_[id].gathered && states_[id].users == 0 && (even_soon || !needed_soon(id))) free(id, actions);
    }
  }
}

void Schedule::prefetch(std::vector<Action>& actions) {
  for (size_t i = 0; i < static_cast<size_t>(options_.prefetch_units); ++i) {
    const auto use = order_.ahead(i);
    if (!use) return;
    const size_t missing = missing_bytes(use->unit);
    if (missing > limit_bytes_ - std::min(limit_bytes_, gathered_bytes_)) return;
    for (const UnitId id : layout_.units[use->unit].needs) gather(id, actions);
  }
}

// One reduction may be behind the unit that computes; older ones have had that unit's time.
void Schedule::open_gradients(UnitId unit, std::vector<Action>& actions) {
  State& state = states_[unit];
  if (state.gradient) return;
  while (std::find(in_flight_.begin(), in_flight_.end(), unit) != in_flight_.end())
    retire_down_to(in_flight_.size() - 1, actions);
  retire_down_to(1, actions);
  state.gradient = true;
  state.gradient_uses_left = state.gradient_uses;
  actions.push_back({Kind::kOpen, unit});
}

void Schedule::reduce(UnitId unit, std::vector<Action>& actions) {
  states_[unit].gradient = false;
  in_flight_.push_back(unit);
  actions.push_back({Kind::kReduce, unit});
}

void Schedule::retire_down_to(size_t in_flight, std::vector<Action>& actions) {
  while (in_flight_.size() > in_flight) {
    actions.push_back({Kind::kRetire, in_flight_.front()});
    in_flight_.pop_front();
  }
}

}  // namespace shardcomm::zero
