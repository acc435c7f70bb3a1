// Part of the door memory/memory.h.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "shardcomm/status.h"

namespace shardcomm {

// Returns how much this process may still take without swapping: the least of MemAvailable, the room in each control
// group above us, and RLIMIT_AS. SIZE_MAX where none is known. `root` stands before /proc and /sys, for tests.
size_t memory_available_bytes(const std::string& root = {});

// kOutOfMemory "<label> needs …, … available" if that is less than `bytes`. Ranks that allocate at the same moment do
// not see each other's untouched pages: who knows their sum asks for the sum.
Status check_memory_for(size_t bytes, std::string_view label);

}  // namespace shardcomm
