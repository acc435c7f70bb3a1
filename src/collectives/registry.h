// The ways to carry out collectives, as rows.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "collectives/execution.h"
#include "planner/planner.h"
#include "transport/transport.h"

namespace shardcomm {

// A way to move bytes, whatever the collective.
struct Engine {
  std::string_view name;               // "direct"
  std::optional<TransportKind> needs;  // none: the bytes travel in the announcements, which every transport has
  Status (*run)(Execution& execution);
};

// A row of the registry: a collective, an engine that can carry it out, and what that costs.
struct Algorithm {
  Collective collective;
  const Engine* engine;
  CostFunction cost;
  Status run(Execution& execution) const { return engine->run(execution); }
};
std::span<const Algorithm> algorithms() noexcept;  // those of one collective stand together
std::string name(const Algorithm& algorithm);      // "all_gather_many_direct"

}  // namespace shardcomm
