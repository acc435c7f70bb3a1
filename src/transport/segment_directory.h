// Part of the door transport/transport.h. Segments that one rank makes by itself, while the communicator runs: it
// publishes each in a table in memory that all its peers map, and names it by an id wherever it says that bytes lie in
// it. A peer that meets an id for the first time reads the entry, maps the segment, and keeps it.
//
// An id is the entry's number and a generation, which is another one whenever the entry is used again; so an id means
// one segment for ever, and a mapping made for it never serves another. The owner alone writes to its table: the entry
// first, then the id, with release. A reader takes the entry for what it wants only where the id is the wanted one
// before and after (H.-J. Boehm, Can seqlocks get along with programming language memory models?, MSPC 2012).
//
// A segment is withdrawn when no operation uses it, so no peer reads it then, unless the communicator has failed and
// some rank is not aware of it yet. So peers unmap what was withdrawn only while none of their operations reads any
// published segment: readers are counted, and the last one out unmaps.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "memory/memory.h"
#include "shardcomm/status.h"
#include "shardcomm/types.h"
#include "transport/peer_mapping.h"

namespace shardcomm {

class MappedTransport;

inline constexpr size_t kMostPublished = 1024;  // at a time, by one rank

// What a peer needs to map a segment; all zero before the entry is used for the first time.
struct alignas(64) DirectoryEntry {
  static constexpr size_t kCardWords = 13;

  std::atomic<uint32_t> id;          // 0: nothing is published here
  std::atomic<uint32_t> card_bytes;  // of the transport's card
  std::atomic<uint64_t> address;     // of the segment, in the owner's process
  std::array<std::atomic<uint64_t>, kCardWords> card;
};
static_assert(sizeof(DirectoryEntry) == 128);

// Any thread.
class SegmentDirectory {
 public:
  static constexpr size_t kBytes = kMostPublished * sizeof(DirectoryEntry);  // of zero-filled memory, at each rank
  // Ids are distinct from those of windows, and from kNoWindow.
  static constexpr bool is_published(uint32_t id) noexcept { return static_cast<int32_t>(id) < -1; }

  // `tables`: kBytes of every rank, mapped here; `transport` outlives this.
  SegmentDirectory(Rank rank, MappedTransport& transport, PeerMapping tables);
  ~SegmentDirectory();

  // Makes a segment of this rank known to its peers. kOutOfMemory where kMostPublished are.
  Result<uint32_t> publish(const Allocation& segment);
  void withdraw(uint32_t id) noexcept;

  // --- a peer's bytes: between enter and leave ---
  void enter() noexcept { readers_.fetch_add(1, std::memory_order_seq_cst); }
  void leave() noexcept;
  // Where bytes of a published segment are mapped here; null where it cannot be mapped, and why_not(peer) says why.
  const std::byte* locate(Rank peer, uint32_t id, uint64_t address) noexcept;
  Status why_not(Rank peer) const;

 private:
  struct Mapped;
  using Slots = std::array<std::atomic<const Mapped*>, kMostPublished>;
  struct Peer {
    std::atomic<Slots*> slots{nullptr};  // made when its first segment is met
    std::unique_ptr<Slots> slots_memory;
    Status failure;  // to map a segment, the last
  };

  DirectoryEntry& entry(Rank rank, size_t slot) const noexcept;
  const Mapped* find(Rank peer, uint32_t id) const noexcept;
  const Mapped* meet(Rank peer, uint32_t id) noexcept;
  Result<MappedMemory> map(Rank peer, uint32_t id, uint64_t& address) const;
  void drop_withdrawn() noexcept;  // with mutex_
  void unmap_dropped() noexcept;   // with mutex_

  const Rank rank_;
  MappedTransport& transport_;
  const PeerMapping tables_;
  std::vector<Peer> peers_;  // by rank

  mutable std::mutex mutex_;  // of everything below, and of what peers_ own
  std::array<uint32_t, kMostPublished> next_generation_{};
  std::vector<std::unique_ptr<const Mapped>> mapped_;   // what the slots point to
  std::vector<std::unique_ptr<const Mapped>> dropped_;  // no slot points there any more, but a reader may
  std::atomic<int64_t> readers_{0};
  std::atomic<bool> has_dropped_{false};
};

}  // namespace shardcomm
