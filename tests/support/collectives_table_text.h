// What the files of the table share.
#pragma once
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/types.h"

namespace shardcomm::testing {

// The reductions that are offered for a dtype.
inline std::vector<ReduceOp> ops_of(DType dtype) {
  std::vector<ReduceOp> ops;
  for (int op = 0; op < kReduceOpCount; ++op) {
    if (supports(dtype, static_cast<ReduceOp>(op))) ops.push_back(static_cast<ReduceOp>(op));
  }
  return ops;
}

inline size_t sum_of(const std::vector<size_t>& counts, size_t end) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<ptrdiff_t>(end), size_t{0});
}

inline std::string call_text(std::string_view call, DType dtype, size_t count, bool in_place) {
  return std::string(call) + " " + std::string(name(dtype)) + " count " + std::to_string(count) +
         (in_place ? " in place" : "");
}

}  // namespace shardcomm::testing
