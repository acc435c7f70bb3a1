// What is said about a set of timed samples.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace shardcomm::tools {

// Microseconds. Percentiles interpolate between the two nearest samples, so that median is the 50th.
struct Statistics {
  double min = 0, median = 0, max = 0, mean = 0;
  double p90 = 0, p99 = 0;
};

Statistics statistics_of(std::vector<double> samples);  // all zero for none

// Sample by sample the longest of all ranks; `of_ranks` is [ranks, samples].
std::vector<double> slowest_of(std::span<const double> of_ranks, size_t samples);

}  // namespace shardcomm::tools
