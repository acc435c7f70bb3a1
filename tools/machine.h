// What this machine is made of, as far as placing ranks goes.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "shardcomm/status.h"

namespace shardcomm::tools {

struct Cache {
  int level = 1;
  size_t size_bytes = 0;
  int count = 0;  // of this size
};

struct Machine {
  std::string processor;  // as its maker calls it
  int cores = 0;          // physical
  int units = 0;          // hardware threads
  int usable_units = 0;   // of those, what this process may run on
  int numa_nodes = 0;
  size_t memory_bytes = 0;
  std::vector<Cache> caches;
};

Result<Machine> look_at_machine();

}  // namespace shardcomm::tools
