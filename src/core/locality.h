// The cores that ranks may run on, and which ranks are close to each other by that.
#pragma once
#include <span>
#include <string>
#include <vector>

namespace shardcomm {

// As ranks tell each other: the bytes of a cpu_set_t, or none where the kernel does not say. Of the calling thread.
std::string usable_cores();

// How many the ranks have between them; at least 1.
int count_cores(std::span<const std::string> cores_by_rank);

// A number by rank, equal for ranks whose cores are under one last-level cache; where that says nothing, for ranks
// whose cores are in one NUMA node; where that says nothing either, 0 for all. It says nothing where some rank's cores
// are in several, where no two ranks share one or all share the same, and where nobody knows. Looks at the machine only
// if that can matter, because it takes about ten milliseconds.
std::vector<int> domains_of(std::span<const std::string> cores_by_rank);

}  // namespace shardcomm
