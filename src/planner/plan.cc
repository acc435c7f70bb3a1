// Choosing among candidates, and saying why.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "planner/planner.h"

namespace shardcomm {
namespace {

constexpr std::array<std::string_view, 5> kSourceNames = {"inline", "mapped", "attached", "staged", "mosaic"};

}  // namespace

std::string_view name(SourceKind kind) noexcept {
  const auto i = static_cast<size_t>(kind);
  return i < kSourceNames.size() ? kSourceNames[i] : "unknown";
}

Topology Topology::single_node(int world_size, int cores) {
  return Topology{world_size, std::vector<int>(static_cast<size_t>(world_size), 0), cores};
}

std::string CollectivePlan::to_text() const {
  return fmt::format("algorithm {} transport {} source {} chunk_bytes {} predicted_us {:.2f}: {}", algorithm, transport,
                     name(source), chunk_bytes, predicted_us, reason);
}

std::optional<size_t> choose(const Workload& workload, const Site& site,
                             std::span<const Candidate> candidates) noexcept {
  std::optional<size_t> best;
  double best_us = INFINITY;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const double us = candidates[i].cost(workload, site.topology, site.machine).total_us();
    if (us < best_us) {
      best = i;
      best_us = us;
    }
  }
  return best;
}

CollectivePlan explain_choice(const Workload& workload, const Site& site, std::span<const Candidate> candidates,
                              size_t best) {
  const auto algorithm = [&](size_t i) {
    return fmt::format("{}_{}", name(workload.collective), candidates[i].engine);
  };
  const auto cost = [&](size_t i) { return candidates[i].cost(workload, site.topology, site.machine); };
  CollectivePlan plan;
  plan.algorithm = algorithm(best);
  plan.predicted_us = cost(best).total_us();
  plan.reason =
      fmt::format("{:.2f} us of signals and {:.2f} us of bytes", cost(best).latency_us, cost(best).transfer_us);
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i == best) continue;
    const double us = cost(i).total_us();
    plan.reason += std::isinf(us) ? fmt::format("; {} cannot run this", algorithm(i))
                                  : fmt::format("; {} would take {:.2f} us", algorithm(i), us);
  }
  if (candidates.size() == 1) plan.reason += "; the only candidate";
  return plan;
}

}  // namespace shardcomm
