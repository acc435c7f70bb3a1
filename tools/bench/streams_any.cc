// For processors without a file of their own: what the compiler makes of plain loops.
#include <cstring>

#include "tools/bench/streams.h"

namespace shardcomm::tools {

void stream_copy(std::byte* to, const std::byte* from, size_t bytes, Loop) { std::memcpy(to, from, bytes); }

void stream_add(std::byte* to, std::span<const std::byte* const> sources, size_t bytes, Loop) {
  constexpr size_t kBlock = 64;  // elements summed in registers
  for (size_t at = 0; at < bytes; at += kBlock * sizeof(float)) {
    const size_t part = bytes - at < kBlock * sizeof(float) ? bytes - at : kBlock * sizeof(float);
    float sums[kBlock] = {};
    for (const std::byte* source : sources) {
      float values[kBlock] = {};
      std::memcpy(values, source + at, part);
      for (size_t i = 0; i < kBlock; ++i) sums[i] += values[i];
    }
    std::memcpy(to + at, sums, part);
  }
}

}  // namespace shardcomm::tools
