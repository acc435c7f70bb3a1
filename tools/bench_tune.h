// `shardcomm bench --tune FILE`: a short set of measurements, written as a model of this machine that the planner can
// use instead of its own figures of a typical one.
//
// The file is one JSON object. Figures are per rank, with all ranks at work at once, medians of the slowest rank; GB is
// 1e9 bytes. A figure that could not be measured is null, and its reader keeps its own. Unknown keys are to be skipped.
//
//   "format": "shardcomm_machine", "version": 1
//   "processor": "AMD EPYC", "cores": 2, "ranks": 2, "mode": "processes", "bound": true    where it was measured
//   "one_way_us": 0.15                     a cache line that one rank stored is seen by another that waits for it
//   "signal_us_per_peer": 0.05             each further line to store and to see, beyond the first
//   "cached_bytes": 524288                 a working set (read and written, of one rank) up to this counts as cached
//   "copy_cached_gb_s", "copy_memory_gb_s" bytes copied, in windows
//   "attach_call_us", "attach_gb_s"        process_vm_readv of 8 bytes; bytes read by it in pieces of 256 KiB
//   "staged_gb_s"                          bytes that an all_gather of ordinary memory takes through the staging ring
//   "reduce_cached_gb_s": {"f32": 12.1, "bf16": 7.9, …}, "reduce_memory_gb_s": {…}
//                                          bytes written by a sum of as many sources as ranks, by type of the elements
//   "barrier_us": 0.4                      of the measured ranks
//   "crossover_bytes": {"all_gather": {"window": 4096, "ordinary": 8192}, …}
//                                          size of the whole buffer from which "direct" beats "inline"
#pragma once
#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "shardcomm/communicator.h"

namespace shardcomm::tools {

struct MachineModel {
  std::string processor;
  int cores = 0;
  int ranks = 0;
  bool threads = false;  // ranks are threads of one process
  bool bound = false;    // to one core each
  size_t cached_bytes = 0;
  std::optional<double> one_way_us, signal_us_per_peer;
  std::optional<double> copy_cached_gb_s, copy_memory_gb_s;
  std::optional<double> attach_call_us, attach_gb_s;
  std::optional<double> staged_gb_s;
  std::optional<double> barrier_us;
  std::map<std::string, double> reduce_cached_gb_s, reduce_memory_gb_s;  // by name of the DType
  std::map<std::string, std::map<std::string, size_t>> crossover_bytes;  // [collective][memory]
};

std::string to_json(const MachineModel& model);

}  // namespace shardcomm::tools
