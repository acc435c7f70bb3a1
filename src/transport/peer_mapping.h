// Part of the door transport/transport.h: the same memory of every rank, mapped into this process.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

namespace shardcomm {

// Memory of one peer, mapped here for as long as keep_alive is.
struct MappedMemory {
  std::byte* base = nullptr;
  std::shared_ptr<void> keep_alive;
};

struct PeerMapping {
  std::vector<std::byte*> by_rank;  // this rank's own memory at [rank]
  std::vector<std::shared_ptr<void>> keep_alive;
};

}  // namespace shardcomm
