// A rank of a bench: verifies each size, then times it (sampling.h) in turn with the machine (bench_limits.h).
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/bind.h"
#include "tools/bench/layout.h"
#include "tools/bench/limits.h"
#include "tools/bench/statistics.h"

namespace shardcomm::tools {

// The least time that this machine needs for a row.
struct RowLimit {
  std::string_view kind;  // "copy", "read_write", "read_write_copy" (all_reduce), "one_way"
  double us = 0;
  double busbw = 0;    // GB/s of an operation that takes no longer
  double percent = 0;  // us of the median
};

// A prepared call of many tensors, compared: medians of the slowest rank's times.
struct BenchManyTimes {
  double first_us = 0;   // the first run after it was prepared
  double plain_us = 0;   // without
  double as_one_us = 0;  // one tensor of the same bytes
};

struct BenchRow {
  size_t bytes = 0;
  size_t count = 0;
  Statistics time_us;  // of the samples, each as long as on its slowest rank
  int samples = 0;
  int batch = 1;     // calls of a sample
  double algbw = 0;  // GB/s (1e9) of the median
  double busbw = 0;
  std::optional<uint64_t> wrong;  // elements, over all ranks; nothing where it was not checked
  std::optional<RowLimit> limit;
  std::optional<BenchManyTimes> many;
};

struct BenchResult {
  std::vector<BenchRow> rows;
  uint64_t wrong = 0;  // over all ranks and sizes
};

// What is known before the first size.
struct BenchSetup {
  BenchSpec spec;  // with the seed that was drawn
  Places places;
  std::optional<MachineLimits> limits;
  std::string no_limits;  // why there are none
};

// What rank 0 shows while it goes on; the other ranks get none.
struct BenchSink {
  std::function<void(const BenchSetup& setup)> begin;
  std::function<void(const BenchRow& row)> row;
};

// Collective. A bench that met an error returns it on every rank; wrong elements are no error here.
Result<BenchResult> bench_rank(Communicator& comm, BenchSpec spec, const BenchSink& sink);

}  // namespace shardcomm::tools
