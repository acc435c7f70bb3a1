// Calls hooks of a Schedule without an engine, and shows the actions that come of them as text.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "zero/memory_estimate.h"
#include "zero/schedule.h"
#include "zero/unit.h"

namespace shardcomm::zero {

using Kind = Action::Kind;

inline ParameterSpec parameter(std::string name, std::vector<size_t> shape) {
  return {.name = std::move(name), .shape = std::move(shape)};
}

// Units u0, u1, … of one parameter each, with so many elements.
inline std::vector<UnitSpec> chain(const std::vector<size_t>& counts) {
  std::vector<UnitSpec> units;
  for (size_t i = 0; i < counts.size(); ++i)
    units.push_back({std::string(1, 'u') + std::to_string(i), {parameter("w", {counts[i]})}});
  return units;
}

inline Layout layout_of(const std::vector<UnitSpec>& units, int ranks, const ZeroOptions& options) {
  auto layout = make_layout(units, ranks, options);
  EXPECT_TRUE(layout.ok()) << layout.status().to_string();
  return std::move(layout).value();
}

// "gather1 join1"; with several transfers in a unit "gather1.0 gather1.1 join1".
inline std::string text(const std::vector<Action>& actions, const Layout& layout) {
  static const char* const kNames[] = {"gather", "join", "free", "open", "reduce", "retire", "discard"};
  std::string line;
  for (const Action& action : actions) {
    line.append(line.empty() ? "" : " ")
        .append(kNames[static_cast<int>(action.kind)])
        .append(std::to_string(action.unit));
    const bool of_values = action.kind == Kind::kGather;
    const bool of_gradients = action.kind == Kind::kReduce || action.kind == Kind::kRetire;
    const UnitLayout& unit = layout.units[action.unit];
    const size_t transfers = of_values ? unit.value_transfers.size() : unit.gradient_transfers.size();
    if ((of_values || of_gradients) && transfers > 1) line.append(".").append(std::to_string(action.transfer));
  }
  return line;
}

// Runs hooks and keeps what came of them.
struct Walk {
  Walk(const Layout& units, const ZeroOptions& options)
      : layout(units), schedule(units, options, dry_run(units, options).gradient_capacity) {}
  std::string before(UnitId unit, Pass pass) {
    return record([&](auto& actions) { return schedule.before(unit, pass, actions); });
  }
  std::string after(UnitId unit, Pass pass, bool sync = true) {
    return record([&](auto& actions) { return schedule.after(unit, pass, sync, actions); });
  }
  std::string finish(bool sync = true) {
    return record([&](auto& actions) { return schedule.finish(sync, actions); });
  }
  template <class Call>
  std::string record(Call call) {
    std::vector<Action> actions;
    const Status status = call(actions);
    return status.ok() ? text(actions, layout) : std::string(status.message());
  }
  const Layout& layout;
  Schedule schedule;
};

}  // namespace shardcomm::zero
