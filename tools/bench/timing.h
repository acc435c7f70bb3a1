// Times of all ranks together.
#pragma once
#include <vector>

#include "shardcomm/communicator.h"
#include "tools/bench/sampling.h"
#include "tools/bench/statistics.h"

namespace shardcomm::tools {

Result<double> most_of_ranks(Communicator& comm, double value);  // collective
// Collective; each sample the longest of all ranks'.
Result<std::vector<double>> slowest_samples(Communicator& comm, const std::vector<double>& mine);

}  // namespace shardcomm::tools
