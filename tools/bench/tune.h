// `shardcomm bench --tune FILE`: a short set of measurements. FILE becomes the model of this machine that the option
// tune_file reads (MachineModel of shardcomm/plan.h); what else was measured is shown, and written by --json.
//
// Figures are medians of the slowest rank with all ranks at work at once; GB is 1e9 bytes. Some cannot be measured
// everywhere: cross-memory attach where it is not allowed or ranks are threads, a cache line's way where ranks have no
// core each. The file then has the typical figure, or none where that is for its readers to measure.
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "shardcomm/communicator.h"
#include "tools/bench/bind.h"

namespace shardcomm::tools {

struct TuneReport {
  MachineModel model;
  std::vector<std::string> unmeasured;  // figures of the model that could not be measured, and why
  Places places;
  bool threads = false;
  double barrier_us = 0;
  // GB/s written by a rank's part of a sum over all ranks, by type of the elements.
  std::map<std::string, double> reduce_cached_gb_s, reduce_memory_gb_s;
  // Size of the whole buffer from which "direct" beats "inline", by collective and memory ("window", "ordinary").
  std::map<std::string, std::map<std::string, size_t>> crossover_bytes;
};

// Collective; the report is rank 0's.
Result<TuneReport> tune(Store& store, Communicator::Group self, bool threads);
void print_tuning(const TuneReport& report);
std::string to_json(const TuneReport& report);

}  // namespace shardcomm::tools
