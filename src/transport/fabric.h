// Part of the door transport/transport.h. A Fabric is the connected transport of one communicator: its ranks' control
// blocks, messages, signals, staging rings and mapped windows. Collectives are written in its terms:
//
//   payload() … announce()   show every peer what this rank is doing and where its bytes are
//   collect()                wait until every rank has announced the same sequence, and check that all agree
//   read / map / staged      the peers' bytes
//   finish_reading(), await_readers()   hand the peers' memory back, and wait until they have handed back ours
//
// Thread rule: one operation at a time; abort(), failure() and lost-peer checks from any thread.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/birthplace.h"
#include "base/processor.h"
#include "base/time_limit.h"
#include "transport/control_block.h"
#include "transport/transport.h"

namespace shardcomm {

// Where a rank's bytes are, as its peers need to know it. Travels in messages.
struct SourceEntry {
  uint64_t address;  // in the owner's process
  uint32_t window;   // kNoWindow, or the id of an allocated window that holds them
  uint32_t staged;   // 1: read it from the owner's staging ring instead
};
inline constexpr uint32_t kNoWindow = UINT32_MAX;

// An allocated window as this rank sees it.
struct MappedWindow {
  uint32_t id;
  std::byte* base;
  size_t bytes;
  std::vector<uint64_t> raw_base_by_rank;  // in the owners' processes
  MappedTransport::Mapping mapping;        // ours for the same bytes

  bool holds(const std::byte* begin, size_t count) const noexcept {
    return begin >= base && begin + count <= base + bytes;
  }
  // What a peer calls `address`.
  const std::byte* at(Rank peer, uint64_t address) const noexcept {
    const auto p = static_cast<size_t>(peer);
    return mapping.by_rank[p] + (address - raw_base_by_rank[p]);
  }
  // What lies at a peer where `own` lies here.
  const std::byte* counterpart(Rank peer, const std::byte* own) const noexcept {
    return mapping.by_rank[static_cast<size_t>(peer)] + (own - base);
  }
};

// What one operation is, for messages to people.
struct OperationName {
  uint64_t epoch;
  std::string_view label;
};

// Who reads ordinary memory by cross-memory attach; the others read it from the staging ring. Agreed once by all ranks,
// since the owner of the bytes decides whether to stage them.
enum class Attach : uint8_t { kNever, kGathers, kGathersAndReductions };

class Fabric;

// Where bytes are, for the length of one operation: it remembers the window it found last, because most of what one
// operation moves lies in one window.
class SourceLookup {
 public:
  explicit SourceLookup(const Fabric& fabric) noexcept : fabric_(fabric) {}

  // The window of this rank that holds them; null: none, or it does not matter, since all ranks are threads.
  const MappedWindow* window_of(const std::byte* begin, size_t bytes) noexcept {
    return last_ != nullptr && last_->holds(begin, bytes) ? last_ : search(begin, bytes);
  }
  // Null: not mapped here.
  const std::byte* map(Rank peer, const SourceEntry& entry) noexcept {
    return last_ != nullptr && last_->id == entry.window ? last_->at(peer, entry.address) : search(peer, entry);
  }

 private:
  const MappedWindow* search(const std::byte* begin, size_t bytes) noexcept;
  const std::byte* search(Rank peer, const SourceEntry& entry) noexcept;
  const Fabric& fabric_;
  const MappedWindow* last_ = nullptr;  // stays while operations use it, by the rule of window.h
};

class Fabric {
 public:
  // This rank's half, before the peers are known. Its card is exchanged by whoever made it.
  struct Offer {
    std::unique_ptr<MappedTransport> transport;
    Segment control;
    Rank rank;
    int size;
    Card transport_card, control_card;
  };
  static Result<Offer> prepare(std::unique_ptr<MappedTransport> transport, Rank rank, int size, const Options& options);
  // Where this fails, `offer` stays as it is: keep it until all ranks know, since peers may be mapping what it offers.
  static Result<std::unique_ptr<Fabric>> connect(Offer& offer, std::span<const Card> transport_cards,
                                                 std::span<const Card> control_cards, const Options& options,
                                                 Deadline deadline);
  ~Fabric();  // marks this rank as departed; waits for nobody

  Rank rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  std::string_view transport_name() const noexcept { return transport_->name(); }

  Status can_attach_all() const;  // ok: read() works on ordinary memory of every rank
  void set_attach(Attach agreed) noexcept { attach_ = agreed; }
  void release_cards() noexcept { control_->close_fd(); }  // once every peer has connected
  Attach attach() const noexcept { return attach_; }
  bool attaches(bool reduction) const noexcept {
    return attach_ == Attach::kGathersAndReductions || (attach_ == Attach::kGathers && !reduction);
  }
  size_t staging_slot_bytes() const noexcept { return slot_bytes_; }
  bool is_one_process() const noexcept { return all_same_process_; }  // all ranks are its threads
  void set_oversubscribed(bool more_ranks_than_cores) noexcept { oversubscribed_ = more_ranks_than_cores; }

  // --- announcing ---
  std::span<std::byte> payload() noexcept;  // of the next message; write, then announce
  void announce(const Signature& signature, uint8_t phase, size_t payload_bytes, const OperationName& name) noexcept;
  Status collect(TimeLimit& limit);
  std::span<const std::byte> payload_of(Rank peer) const noexcept;  // after collect, until the next announce but one
  const Signature& signature_of(Rank peer) const noexcept;

  void finish_reading() noexcept;
  Status await_readers(TimeLimit& limit);

  // --- memory ---
  // By cross-memory attach. Where the peer is gone, the error is the failure that all ranks tell.
  Status read(Rank peer, void* target, uint64_t address, size_t bytes);

  // --- staging: chunk numbers count from 0 in each operation ---
  Result<std::byte*> stage_slot(uint64_t chunk, TimeLimit& limit);  // free to be filled
  void stage_publish(uint64_t chunk) noexcept;
  Result<const std::byte*> staged(Rank peer, uint64_t chunk, TimeLimit& limit);
  void stage_release(Rank peer, uint64_t chunk) noexcept;
  void stage_finish(uint64_t own_chunks) noexcept;  // own_chunks: 0 when this rank staged nothing in this operation

  // --- windows ---
  Result<Card> share(const Segment& local) { return transport_->share(local); }
  Result<MappedTransport::Mapping> map_window(std::span<const Card> cards_by_rank) {
    return transport_->map(cards_by_rank);
  }
  uint32_t add_window(std::byte* base, size_t bytes, std::vector<uint64_t> raw_base_by_rank,
                      MappedTransport::Mapping mapping);
  void close_window(uint32_t id) noexcept;  // this rank neither offers its part nor reads its peers' any longer
  // Changes with every window that comes or goes: what has been found in them before is found there still while it is
  // the same. Never 0.
  uint64_t windows_version() const noexcept { return windows_version_.load(std::memory_order_acquire); }

  // --- health ---
  void mark_started(uint64_t epoch) noexcept { own().progress.started.store(epoch, std::memory_order_relaxed); }
  void mark_finished(uint64_t epoch) noexcept { own().progress.finished.store(epoch, std::memory_order_relaxed); }
  void abort(const Status& why) noexcept;  // every rank, this one included, fails from now on
  Status failure() const;                  // what abort said, here or at a peer; ok while there is none
  bool has_failed() const noexcept { return own().abort.state.load(std::memory_order_acquire) == 2; }
  Status check_peers() noexcept;  // kPeerLost if a process ended without leaving in good order; tells everyone

 private:
  friend class SourceLookup;
  Fabric() = default;
  ControlBlock& own() const noexcept { return *blocks_[static_cast<size_t>(rank_)]; }
  ControlBlock& block(Rank r) const noexcept { return *blocks_[static_cast<size_t>(r)]; }
  void raise(Signal& signal, uint64_t value) noexcept;
  Status wait(Signal& signal, uint64_t value, Rank peer, TimeLimit& limit);
  // The next message's lines, which the peers have read and will not read again: to take them back takes as long as a
  // signal's way, so it begins early, for a message as long as the last one.
  void take_back_next() const noexcept;
  bool spin(const Signal& signal, uint64_t value) const noexcept;
  bool give_way(const Signal& signal, uint64_t value) const noexcept;
  Status sleep(Signal& signal, uint64_t value, Rank peer, Deadline deadline);
  std::optional<Rank> lost_peer() const;
  Status check_wait(const Signal& signal, uint64_t value, Rank peer, Deadline deadline);
  Status fail(Code code, std::string text) noexcept;  // tells everyone, then returns it
  std::string late_text() const;
  Status disagreement() const;
  std::string announced(Rank r) const;
  void ring_all_bells() noexcept;

  std::unique_ptr<MappedTransport> transport_;
  std::optional<Segment> control_;
  MappedTransport::Mapping control_mapping_;
  std::vector<ControlBlock*> blocks_;
  Birthplace birthplace_;
  Rank rank_ = 0;
  int size_ = 1;
  Attach attach_ = Attach::kNever;
  bool all_same_process_ = false;
  std::vector<uint8_t> same_process_;  // by rank
  bool oversubscribed_ = false;
  std::chrono::nanoseconds spin_{};
  size_t slot_bytes_ = 0;
  uint64_t sequence_ = 0;                // of the last announcement
  Signature announced_{};                // in it
  size_t payload_bytes_ = 0;             // of it
  uint64_t staged_base_ = 0;             // own chunks staged before this operation
  std::vector<uint64_t> consumed_base_;  // [peer] chunks taken from its ring before this operation
  std::vector<uint64_t> consumed_now_;   // [peer] chunks taken in this operation
  mutable std::mutex windows_mutex_;
  std::vector<std::unique_ptr<MappedWindow>> windows_;
  uint32_t next_window_ = 0;
  std::atomic<uint64_t> windows_version_{1};
};

}  // namespace shardcomm
