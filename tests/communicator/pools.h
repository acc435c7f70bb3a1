// What the tests of memory pools share.
#pragma once
#include <cstring>

#include "tests/support/failure.h"

namespace shardcomm::testing {

inline constexpr size_t kMiB = size_t{1} << 20;

// Open files of segments.
inline size_t segment_files() {
  size_t count = 0;
  for (const std::string& number : files_in("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink("/proc/self/fd/" + number, error);
    if (target.starts_with("/memfd:shardcomm:")) ++count;
  }
  return count;
}

// Every rank gathers what all put into their blocks, each filled by rank and round.
inline void expect_gathered(Communicator& comm, std::byte* block, size_t bytes, int round) {
  const auto ranks = static_cast<size_t>(comm.size());
  const auto value = [&](size_t r) { return static_cast<int>((r * 31 + static_cast<size_t>(round) * 7 + 1) % 251); };
  std::memset(block, value(static_cast<size_t>(comm.rank())), bytes);
  std::vector<std::byte> full(bytes * ranks);
  const Status status = outcome(comm.all_gather({block, full.data(), bytes, DType::kU8}, StreamRef::caller()));
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (size_t r = 0; r < ranks; ++r) {
    const auto* part = full.data() + r * bytes;
    const bool right = std::all_of(part, part + bytes, [&](std::byte b) { return b == std::byte(value(r)); });
    ASSERT_TRUE(right) << "round " << round << ": part of rank " << r;
  }
}

}  // namespace shardcomm::testing
