// Part of the door transport/transport.h. Windows finds bytes: which allocated window of this rank holds them, and
// where a peer's bytes are mapped here. Threads of one process read each other's memory by its own addresses.
//
// Thread rule: any thread; a window that an operation uses stays until the operation has ended (window.h).
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "shardcomm/types.h"
#include "transport/peer_mapping.h"

namespace shardcomm {

// The place of a rank's bytes, as its peers need to know it. Travels in messages.
struct SourceEntry {
  uint64_t address;  // in the owner's process
  uint32_t window;   // kNoWindow, or the id of an allocated window that holds them
  uint32_t staged;   // 1: read it from the owner's staging ring instead
};
inline constexpr uint32_t kNoWindow = UINT32_MAX;

// An allocated window as this rank sees it.
struct MappedWindow {
  uint32_t id;  // the same on all ranks
  std::byte* base;
  size_t bytes;
  std::vector<uint64_t> raw_base_by_rank;  // in the owners' processes
  PeerMapping mapping;                     // ours for the same bytes

  bool holds(const std::byte* begin, size_t count) const noexcept {
    return begin >= base && begin + count <= base + bytes;
  }
  // Returns where a peer's `address` is mapped here.
  const std::byte* locate(Rank peer, uint64_t address) const noexcept {
    const auto p = static_cast<size_t>(peer);
    return mapping.by_rank[p] + (address - raw_base_by_rank[p]);
  }
  // The peer's bytes at the same offset as `own` here.
  const std::byte* counterpart(Rank peer, const std::byte* own) const noexcept {
    return mapping.by_rank[static_cast<size_t>(peer)] + (own - base);
  }
};

class Windows {
 public:
  // same_process_by_rank: 1 for the ranks that are threads of this process, this rank included.
  explicit Windows(std::vector<uint8_t> same_process_by_rank);

  struct Share {
    std::byte* base;
    size_t bytes;
    std::vector<uint64_t> raw_base_by_rank;
    PeerMapping mapping;
  };
  uint32_t add(Share share);
  void close(uint32_t id) noexcept;  // this rank neither offers its part nor reads its peers' any longer
  // Changes with every window that comes or goes. What was found at one version is valid while the version stays.
  // Never 0.
  uint64_t version() const noexcept { return version_.load(std::memory_order_acquire); }
  bool is_one_process() const noexcept { return is_one_process_; }  // all ranks are its threads

 private:
  friend class SourceLookup;
  const std::vector<uint8_t> same_process_;
  const bool is_one_process_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<MappedWindow>> windows_;
  uint32_t next_id_ = 0;
  std::atomic<uint64_t> version_{1};
};

// Finds bytes for the length of one operation. It remembers the window it found last, because most of what one
// operation moves lies in one window. One thread at a time.
class SourceLookup {
 public:
  explicit SourceLookup(const Windows& windows) noexcept : windows_(windows) {}

  // The window of this rank that holds them; null where none does, or where all ranks are threads and need none.
  const MappedWindow* window_of(const std::byte* begin, size_t bytes) noexcept {
    return last_ != nullptr && last_->holds(begin, bytes) ? last_ : search(begin, bytes);
  }
  // Null: not mapped here.
  const std::byte* locate(Rank peer, const SourceEntry& entry) noexcept {
    return last_ != nullptr && last_->id == entry.window ? last_->locate(peer, entry.address) : search(peer, entry);
  }

 private:
  const MappedWindow* search(const std::byte* begin, size_t bytes) noexcept;
  const std::byte* search(Rank peer, const SourceEntry& entry) noexcept;
  const Windows& windows_;
  const MappedWindow* last_ = nullptr;
};

}  // namespace shardcomm
