#include "tools/bench/timing.h"

namespace shardcomm::tools {

Result<double> most_of_ranks(Communicator& comm, double value) {
  double most = 0;
  SHARDCOMM_TRY(comm.all_reduce({.in = &value, .out = &most, .count = 1, .dtype = DType::kF64, .op = ReduceOp::kMax},
                                StreamRef::caller())
                    .status());
  return most;
}

Result<std::vector<double>> slowest_samples(Communicator& comm, const std::vector<double>& mine) {
  if (mine.empty()) return mine;
  std::vector<double> of_ranks(mine.size() * static_cast<size_t>(comm.size()));
  SHARDCOMM_TRY(
      comm.all_gather({.shard = mine.data(), .full = of_ranks.data(), .count = mine.size(), .dtype = DType::kF64},
                      StreamRef::caller())
          .status());
  return slowest_of(of_ranks, mine.size());
}

}  // namespace shardcomm::tools
