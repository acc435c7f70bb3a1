// One rank of a bench: verifies each size, then times it.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench_layout.h"

namespace shardcomm::tools {

struct BenchRow {
  size_t bytes = 0;
  size_t count = 0;
  // Of the iterations, each as long as on its slowest rank.
  double min_us = 0;
  double median_us = 0;
  double max_us = 0;
  double algbw = 0;  // GB/s (1e9) of the median
  double busbw = 0;
  std::optional<uint64_t> wrong;  // elements, over all ranks; nothing where it was not checked
};

struct BenchResult {
  std::vector<BenchRow> rows;
  uint64_t wrong = 0;  // over all ranks and sizes
};

// What rank 0 shows while it goes on; the other ranks get none.
struct BenchSink {
  std::function<void(const BenchSpec& spec, int ranks)> begin;  // with the seed that was drawn
  std::function<void(const BenchRow& row)> row;
};

// Collective. A bench that met an error returns it on every rank; wrong elements are no error here.
Result<BenchResult> bench_rank(Store& store, Rank rank, int ranks, BenchSpec spec, const BenchSink& sink);

}  // namespace shardcomm::tools
