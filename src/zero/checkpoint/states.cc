#include "zero/checkpoint/states.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "zero/agree.h"
#include "zero/unit.h"

namespace shardcomm::zero {
namespace {

constexpr size_t kMostNameBytes = 64;

Status check(const NamedState& state, size_t count) {
  if (!is_state_name(state.name)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("a state is named '{}': a name has letters, digits, '_', '-' and '.', {} at most",
                              state.name, kMostNameBytes));
  }
  if (state.values.size() == count) return {};
  return Status(Code::kInvalidArgument, fmt::format("state '{}' has {} elements, the engine's optimized_count() is {}",
                                                    state.name, state.values.size(), count));
}

Status check_unique(const std::vector<NamedState>& sorted) {
  const auto same = std::ranges::adjacent_find(sorted, {}, &NamedState::name);
  if (same == sorted.end()) return {};
  return Status(Code::kInvalidArgument, fmt::format("two states are named '{}'", same->name));
}

// The tensors of states must not have the names of parameters.
Status check_free(std::span<const UnitSpec> units, const std::vector<NamedState>& states) {
  std::set<std::string> taken;
  for (const UnitSpec& unit : units) {
    for (uint32_t p = 0; p < unit.parameters.size(); ++p) taken.insert(full_name(unit, p));
  }
  for (const std::string& parameter : taken) {
    for (const NamedState& state : states) {
      const std::string tensor = state_tensor(parameter, state.name);
      if (!taken.contains(tensor)) continue;
      return Status(Code::kInvalidArgument,
                    fmt::format("state '{}' of {} would have the name of parameter {}", state.name, parameter, tensor));
    }
  }
  return {};
}

}  // namespace

std::string state_tensor(std::string_view parameter, std::string_view state) {
  return fmt::format("{}/{}", parameter, state);
}

bool is_state_name(std::string_view name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  return !name.empty() && name.size() <= kMostNameBytes && std::ranges::all_of(name, is_allowed);
}

Result<std::vector<NamedState>> all_states(const ZeroEngine& engine, const AdamW* optimizer,
                                           const std::vector<NamedState>& further) {
  std::vector<NamedState> states = further;
  if (optimizer != nullptr) {
    states.push_back({"m", optimizer->first_moments()});
    states.push_back({"v", optimizer->second_moments()});
  }
  std::ranges::sort(states, {}, &NamedState::name);
  for (const NamedState& state : states) SHARDCOMM_TRY(check(state, engine.optimized_count()));
  SHARDCOMM_TRY(check_unique(states));
  SHARDCOMM_TRY(check_free(engine.units(), states));
  return states;
}

std::vector<std::string> names_of(const std::vector<NamedState>& states) {
  std::vector<std::string> names;
  for (const NamedState& state : states) names.push_back(state.name);
  return names;
}

std::string list_text(const std::vector<std::string>& names) { return fmt::format("[{}]", fmt::join(names, ", ")); }

Status agree_on_states(Communicator& comm, const AdamW* optimizer, const std::vector<NamedState>& states) {
  const std::string own = list_text(names_of(states)) + (optimizer == nullptr ? "" : " with AdamW");
  SHARDCOMM_TRY_ASSIGN(const auto lists, exchange_texts(comm, own));
  for (size_t rank = 1; rank < lists.size(); ++rank) {
    if (lists[rank] == lists[0]) continue;
    return Status(
        Code::kFailedPrecondition,
        fmt::format("the states differ between ranks: rank 0 gives {}, rank {} gives {}", lists[0], rank, lists[rank]));
  }
  return {};
}

}  // namespace shardcomm::zero
