#include "tools/bench/statistics.h"

#include <algorithm>
#include <numeric>

namespace shardcomm::tools {
namespace {

double percentile(const std::vector<double>& sorted, double part) {
  const double place = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - static_cast<double>(below));
}

}  // namespace

Statistics statistics_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  return {.min = samples.front(),
          .median = percentile(samples, 0.5),
          .max = samples.back(),
          .mean = std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size()),
          .p90 = percentile(samples, 0.9),
          .p99 = percentile(samples, 0.99)};
}

std::vector<double> slowest_of(std::span<const double> of_ranks, size_t samples) {
  std::vector<double> slowest(samples);
  for (size_t i = 0; i < of_ranks.size(); ++i) slowest[i % samples] = std::max(slowest[i % samples], of_ranks[i]);
  return slowest;
}

}  // namespace shardcomm::tools
