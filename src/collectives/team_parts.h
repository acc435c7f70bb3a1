// Work on a range of bytes, shared by the threads of a team.
#pragma once
#include <utility>
#include <vector>

#include "device/device.h"
#include "shardcomm/status.h"

namespace shardcomm {

inline constexpr size_t kPartAlignBytes = 4096;  // parts begin at multiples of this: two threads share no page

// Calls run(part, begin, end) for the ranges that make up [0, bytes): one for each thread that such a range is worth,
// team.parts_for(bytes) of them. Returns the failure of the lowest range that failed.
template <class Run>
Status in_parts(HostTeam& team, size_t bytes, const Run& run) {
  const int parts = team.parts_for(bytes);
  if (parts == 1) return run(size_t{0}, size_t{0}, bytes);
  std::vector<Status> results(static_cast<size_t>(parts));
  const size_t part_bytes = bytes / results.size() / kPartAlignBytes * kPartAlignBytes;
  team.run(parts, [&](int i) {
    const auto part = static_cast<size_t>(i);
    results[part] = run(part, part * part_bytes, i + 1 == parts ? bytes : (part + 1) * part_bytes);
  });
  for (Status& result : results) SHARDCOMM_TRY(std::move(result));
  return {};
}

}  // namespace shardcomm
