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

size_t bytes_of(const Layout& layout, const std::vector<UnitId>& units) {
  size_t bytes = 0;
  for (const UnitId id : units) bytes += layout.units[id].value_bytes;
  return bytes;
}

// What any two units need at once, tied ones with their owners: so that the next gather always fits beside the current.
size_t two_largest_units(const Layout& layout) {
  size_t largest = 0;
  for (size_t i = 0; i < layout.units.size(); ++i) {
    const std::vector<UnitId>& needs = layout.units[i].needs;
    const size_t own = bytes_of(layout, needs);
    for (size_t j = i; j < layout.units.size(); ++j) {
      size_t bytes = own;
      for (const UnitId id : layout.units[j].needs) bytes += contains(needs, id) ? 0 : layout.units[id].value_bytes;
      largest = std::max(largest, bytes);
    }
  }
  return largest;
}

size_t limit_of(const Layout& layout, const ZeroOptions& options) {
  if (!options.free_after_forward) return kNever;  // all units end up gathered anyway
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

Schedule::Schedule(const Layout& layout, const ZeroOptions& options)
    : layout_(layout),
      options_(options),
      gathers_(layout.stage.shards_values),
      limit_bytes_(limit_of(layout, options)),
      arena_(arena_capacity(layout, options)),
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

bool Schedule::fits_limit(size_t more_bytes) const noexcept {
  return gathered_bytes_ <= limit_bytes_ && more_bytes <= limit_bytes_ - gathered_bytes_;
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
  for (size_t i = 0; i < next; ++i) {
    for (const UnitId id : layout_.units[order_.ahead(i)->unit].needs) {
      if (!states_[id].gathered && !contains(sooner, id)) sooner.push_back(id);
    }
  }
  return fits_limit(bytes_of(layout_, sooner));
}

// Where all units stay gathered, each has its own place.
std::optional<size_t> Schedule::place(UnitId unit) {
  if (options_.free_after_forward) return arena_.allocate(layout_.units[unit].value_bytes);
  size_t offset = 0;
  for (UnitId id = 0; id < unit; ++id) offset += layout_.units[id].value_bytes;
  return offset;
}

void Schedule::gather(UnitId unit, std::optional<size_t> offset, std::vector<Action>& actions) {
  states_[unit].gathered = true;
  states_[unit].offset = offset;
  gathered_bytes_ += layout_.units[unit].value_bytes;
  actions.push_back({Kind::kGather, unit});
}

// What was gathered for uses that did not come, or come later, gives way.
void Schedule::gather_needs(UnitId unit, std::vector<Action>& actions) {
  const size_t missing = missing_bytes(unit);
  while (missing > 0 && !fits_limit(missing) && evict_one(actions)) continue;
  for (const UnitId id : layout_.units[unit].needs) {
    if (states_[id].gathered) continue;
    std::optional<size_t> offset;
    if (layout_.units[id].value_bytes > 0) {
      offset = place(id);
      while (!offset && evict_one(actions)) offset = place(id);
    }
    gather(id, offset, actions);
  }
}

// All that the unit needs, or nothing (false).
bool Schedule::gather_ahead(UnitId unit, std::vector<Action>& actions) {
  if (!fits_limit(missing_bytes(unit))) return false;
  std::vector<std::pair<UnitId, std::optional<size_t>>> places;
  for (const UnitId id : layout_.units[unit].needs) {
    if (states_[id].gathered) continue;
    const bool takes_none = layout_.units[id].value_bytes == 0;
    const auto offset = takes_none ? std::nullopt : place(id);
    if (!offset && !takes_none) {
      for (const auto& [unused, taken] : places) {
        if (taken) arena_.release(*taken);
      }
      return false;
    }
    places.emplace_back(id, offset);
  }
  for (const auto& [id, offset] : places) gather(id, offset, actions);
  return true;
}

// Frees the gathered unit that nobody uses and that is needed last; false when there is none.
bool Schedule::evict_one(std::vector<Action>& actions) {
  std::optional<UnitId> victim;
  size_t victim_use = 0;
  for (UnitId id = 0; id < states_.size(); ++id) {
    if (!states_[id].gathered || states_[id].users > 0) continue;
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
  State& state = states_[unit];
  if (options_.free_after_forward && state.offset) arena_.release(*state.offset);
  state.gathered = false;
  state.offset.reset();
  gathered_bytes_ -= layout_.units[unit].value_bytes;
  actions.push_back({Kind::kFree, unit});
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
