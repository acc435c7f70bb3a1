// Choosing among candidates, and saying why.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "planner/planner.h"

namespace shardcomm {
namespace {

constexpr std::array<std::string_view, kCollectiveCount> kCollectiveNames = {
    "all_gather", "reduce_scatter", "all_reduce",       "broadcast",       "all_to_all",
    "barrier",    "all_gather_v",   "reduce_scatter_v", "all_gather_many", "reduce_scatter_many"};
constexpr std::array<std::string_view, 5> kSourceNames = {"inline", "mapped", "attached", "staged", "mosaic"};

}  // namespace

std::string_view name(Collective collective) noexcept {
  const auto i = static_cast<size_t>(collective);
  return i < kCollectiveNames.size() ? kCollectiveNames[i] : "unknown";
}

std::optional<Collective> parse_collective(std::string_view text) noexcept {
  for (size_t i = 0; i < kCollectiveNames.size(); ++i) {
    if (kCollectiveNames[i] == text) return static_cast<Collective>(i);
  }
  return std::nullopt;
}

bool reduces(Collective collective) noexcept {
  return collective == Collective::kReduceScatter || collective == Collective::kAllReduce ||
         collective == Collective::kReduceScatterV || collective == Collective::kReduceScatterMany;
}

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

size_t choose(const Workload& workload, const Site& site, std::span<const Candidate> candidates) noexcept {
  size_t best = 0;
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

CollectivePlan explain_choice(const Workload& workload, const Site& site, std::span<const Candidate> candidates) {
  const auto cost = [&](size_t i) { return candidates[i].cost(workload, site.topology, site.machine); };
  const size_t best = choose(workload, site, candidates);
  CollectivePlan plan;
  plan.algorithm = candidates[best].algorithm;
  plan.predicted_us = cost(best).total_us();
  plan.reason =
      fmt::format("{:.2f} us of signals and {:.2f} us of bytes", cost(best).latency_us, cost(best).transfer_us);
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i == best) continue;
    const double us = cost(i).total_us();
    plan.reason += std::isinf(us) ? fmt::format("; {} cannot run this", candidates[i].algorithm)
                                  : fmt::format("; {} would take {:.2f} us", candidates[i].algorithm, us);
  }
  if (candidates.size() == 1) plan.reason += "; the only candidate";
  return plan;
}

}  // namespace shardcomm
