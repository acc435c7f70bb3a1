// Which cores ranks run on.
#pragma once
#include <sched.h>

#include <string>
#include <vector>

#include "shardcomm/communicator.h"

namespace shardcomm::tools {

// Binds the calling thread, and those it starts from now on, to one hardware thread of those it may run on: that of
// number `place` when one of each core comes before the second of any; numbers beyond the last begin again.
Status bind_to_core(int place);

// What the ranks' threads may run on.
struct Places {
  std::vector<cpu_set_t> of_ranks;
  int usable = 0;  // hardware threads, of all ranks together
  bool oversubscribed() const { return usable < static_cast<int>(of_ranks.size()); }
  std::vector<std::string> to_text() const;  // of each rank, as the kernel writes such lists: "0-3,8"
};
Result<Places> find_places(Communicator& comm);  // collective

}  // namespace shardcomm::tools
