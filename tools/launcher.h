// Starts the ranks of a job as processes of this machine and looks after them until the last has ended.
#pragma once
#include <string>
#include <vector>

#include "shardcomm/status.h"

namespace shardcomm::tools {

constexpr int kMostRanks = 4096;

struct LaunchSpec {
  int ranks = 1;
  int threads_per_rank = 0;          // for OMP_NUM_THREADS; 0: what is set already, or the cores divided by the ranks
  std::vector<std::string> command;  // program and arguments; the program is looked for in PATH
  // true: every line of output gets "[rank] " before it. false: ranks write to our standard output themselves, and an
  // error line that several ranks print alike is shown once.
  bool prefix_lines = true;
};

// Each rank finds RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, SHARDCOMM_JOB_SECRET and
// OMP_NUM_THREADS in its environment. When one fails the others have a few seconds to end by themselves (they learn of
// it from the library), then they are terminated. Returns the exit code of the first that failed, 128 + n where signal
// n killed it, 128 + n when n interrupted this process, or 0. Ranks end with this process, however it ends.
// SIGUSR1 and SIGUSR2 are passed on to them. Single-threaded processes only; one launch at a time.
Result<int> launch(const LaunchSpec& spec);

// This program again as `ranks` ranks, with the same arguments but for --ranks and its value.
Result<int> launch_self(int ranks, const std::vector<std::string>& arguments);

int usable_cores();  // that this process may run on

}  // namespace shardcomm::tools
