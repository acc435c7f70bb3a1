// The places of a prepared call's bytes, as the engine found them when it ran: here, and at ranks where they lie alike.
// The next run finds its tables ready, for as long as the windows stay. Nothing is kept of a call whose
// tensors lie outside of windows, or among ranks that are threads, or that takes more than one announcement.
#pragma once
#include <vector>

#include "collectives/operation.h"
#include "collectives/reduce_rows.h"
#include "kernels/kernels.h"

namespace shardcomm {

struct CallTables {
  uint64_t windows = 0;      // the fabric's windows_version() that it holds for; 0: none
  uint64_t fingerprint = 0;  // of the entries, never 0 where `windows` is not
  std::vector<SourceEntry> entries;
  std::vector<std::vector<kernels::CopySegment>> copies;  // by source; empty: not found yet
  ReduceRows reduction;                                   // empty: not found yet
};

}  // namespace shardcomm
