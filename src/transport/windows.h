// Part of the door transport/transport.h. Windows finds bytes: which allocated window or pool segment of this rank
// holds them, and where a peer's bytes are mapped here. Threads of one process read each other's memory by its own
// addresses.
//
// Thread rule: any thread; what an operation uses stays until the operation has ended (window.h, pool.h).
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "shardcomm/types.h"
#include "transport/peer_mapping.h"
#include "transport/segment_directory.h"

namespace shardcomm {

// The place of a rank's bytes, as its peers need to know it. Travels in messages.
struct SourceEntry {
  uint64_t address;  // in the owner's process
  uint32_t window;   // kNoWindow, or the id of what holds them: an allocated window or a published segment
  uint32_t staged;   // 1: read it from the owner's staging ring instead
};
inline constexpr uint32_t kNoWindow = UINT32_MAX;

// An allocated window as this rank sees it; or a segment that this rank has published, which has no counterparts.
struct MappedWindow {
  uint32_t id;  // of a window: the same on all ranks
  std::byte* base;
  size_t bytes;
  std::vector<uint64_t> raw_base_by_rank;  // in the owners' processes; empty of a segment
  PeerMapping mapping;                     // ours for the same bytes; empty of a segment

  bool has_counterparts() const noexcept { return !SegmentDirectory::is_published(id); }
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
  // segments: null where this rank can neither publish segments nor meet those of its peers.
  explicit Windows(std::vector<uint8_t> same_process_by_rank, std::unique_ptr<SegmentDirectory> segments = nullptr);

  struct Share {
    std::byte* base;
    size_t bytes;
    std::vector<uint64_t> raw_base_by_rank;
    PeerMapping mapping;
  };
  uint32_t add(Share share);
  void close(uint32_t id) noexcept;  // this rank neither offers its part nor reads its peers' any longer
  // Makes a segment that this rank has by itself readable for its peers, until it is withdrawn; no operation may use it
  // then. Gives kNoWindow where no peer needs to know of it, all being threads of this process, or none can learn of
  // it: it is ordinary memory there.
  Result<uint32_t> publish(const Allocation& segment);
  void withdraw(uint32_t id) noexcept;
  // The reason why a segment of that peer could not be mapped here; ok where there was none.
  Status why_not(Rank peer) const { return segments_ == nullptr ? Status() : segments_->why_not(peer); }

  // Changes with every window or segment that comes or goes. What was found at one version is valid while the version
  // stays. Never 0.
  uint64_t version() const noexcept { return version_.load(std::memory_order_acquire); }
  bool is_one_process() const noexcept { return is_one_process_; }  // all ranks are its threads

 private:
  friend class SourceLookup;
  const std::vector<uint8_t> same_process_;
  const bool is_one_process_;
  const std::unique_ptr<SegmentDirectory> segments_;
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
  SourceLookup(const SourceLookup&) = delete;
  SourceLookup& operator=(const SourceLookup&) = delete;
  ~SourceLookup() {
    if (reads_segments_) windows_.segments_->leave();
  }

  // The window or published segment of this rank that holds them; null where none does, or where all ranks are threads
  // and need none.
  const MappedWindow* window_of(const std::byte* begin, size_t bytes) noexcept {
    return last_ != nullptr && last_->holds(begin, bytes) ? last_ : search(begin, bytes);
  }
  // Null: not mapped here.
  const std::byte* locate(Rank peer, const SourceEntry& entry) noexcept {
    if (SegmentDirectory::is_published(entry.window)) return locate_in_segment(peer, entry);
    return last_ != nullptr && last_->id == entry.window ? last_->locate(peer, entry.address) : search(peer, entry);
  }

 private:
  const MappedWindow* search(const std::byte* begin, size_t bytes) noexcept;
  const std::byte* search(Rank peer, const SourceEntry& entry) noexcept;
  const std::byte* locate_in_segment(Rank peer, const SourceEntry& entry) noexcept;
  const Windows& windows_;
  const MappedWindow* last_ = nullptr;
  bool reads_segments_ = false;  // so what is mapped of the peers' segments stays
};

}  // namespace shardcomm
