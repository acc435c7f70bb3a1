// What core has to know of all_to_all_v before it runs.
#pragma once
#include <cstddef>

namespace shardcomm {

// The counts of at most this many ranks fit an announcement.
size_t most_ranks_of_pairs() noexcept;

}  // namespace shardcomm
