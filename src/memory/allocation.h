// Part of the door memory/memory.h. An allocation is memory of any kind, as transports share and register it.
#pragma once
#include <cstddef>
#include <variant>

#include "memory/segment.h"
#include "shardcomm/types.h"

namespace shardcomm {

// By what another process can open the memory: nothing, for memory that is the caller's own, or a segment's card.
// Device memory joins as alternatives (a driver's export handle).
using NativeHandle = std::variant<std::monostate, SegmentCard>;

// A value that owns nothing.
struct Allocation {
  std::byte* base = nullptr;
  size_t bytes = 0;
  Device device = {};
  NativeHandle handle = {};
};

}  // namespace shardcomm
