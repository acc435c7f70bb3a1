// The places of a known call's bytes, as the engine found them when it ran: here, and at ranks where they lie alike. A
// call that comes again finds its tables ready, for as long as the windows stay. Nothing is kept of a call whose
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

// An upper bound of what the tables take: for each item its entry and, for every source, a row of copies or an address.
constexpr size_t call_tables_bytes(int size, size_t items) noexcept {
  const auto sources = static_cast<size_t>(size);
  const size_t of_item = sizeof(SourceEntry) + sizeof(kernels::ReduceSegment) + sources * sizeof(kernels::CopySegment);
  return sizeof(CallTables) + sources * sizeof(std::vector<kernels::CopySegment>) + items * of_item;
}

}  // namespace shardcomm
