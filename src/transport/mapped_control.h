// Control over memory that all ranks map: each has a block (control_block.h), announces in its own and polls those of
// its peers. mapped_control.cc holds the announcements, mapped_wait.cc waiting and failing, control_text.cc what it
// tells people.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/birthplace.h"
#include "transport/control_block.h"
#include "transport/transport.h"

namespace shardcomm {

class MappedControl final : public Control {
 public:
  struct Setup {
    Rank rank;
    int size;
    std::chrono::nanoseconds spin;  // busy waiting before a rank sleeps
    bool oversubscribed;            // more ranks than cores: a waiting rank gives way instead of spinning
    MappedTransport& transport;     // tells which peers have ended; outlives this
  };

  // Makes this rank's block at the beginning of zero-filled memory of bytes_for() bytes.
  static void format(std::byte* memory, Rank rank, int size) noexcept;
  static constexpr size_t bytes_for(int size) noexcept { return staging_offset(size); }
  // kFailedPrecondition where a peer's block is not what this build expects.
  static Result<std::unique_ptr<MappedControl>> create(const Setup& setup, PeerMapping blocks_by_rank);
  ~MappedControl() override;

  std::span<std::byte> payload() noexcept override;
  void announce(const Announcement& announcement) noexcept override;
  Status collect(TimeLimit& limit) override;
  std::span<const std::byte> payload_of(Rank peer) const noexcept override;
  void finish_reading() noexcept override;
  Status await_reader(Rank peer, TimeLimit& limit) override;
  void progress(uint64_t finished_epoch) noexcept override;
  void abort(const Status& why) noexcept override;
  Status failure() const override;
  Status check_peers() noexcept override;

  // --- for what else lies in the same memory (staging_ring.h, mapped_mailbox.h) ---
  Rank rank() const noexcept { return setup_.rank; }
  int size() const noexcept { return setup_.size; }
  bool is_oversubscribed() const noexcept { return setup_.oversubscribed; }
  std::chrono::nanoseconds spin_time() const noexcept { return setup_.spin; }
  ControlBlock& own() const noexcept { return *blocks_[static_cast<size_t>(setup_.rank)]; }
  ControlBlock& block(Rank r) const noexcept { return *blocks_[static_cast<size_t>(r)]; }
  // `signal` is in this rank's block.
  void raise(Signal& signal, uint64_t value) noexcept;
  // `signal` is in the block of `peer`.
  Status wait(const Signal& signal, uint64_t value, Rank peer, TimeLimit& limit);

 private:
  MappedControl(const Setup& setup, PeerMapping mapping) : setup_(setup), mapping_(std::move(mapping)) {}

  // Prefetches the next message slot for writing. Peers still hold its cache lines shared, and regaining ownership
  // costs one signal latency. Assumes that the next message is as long as the last.
  void prefetch_next_message() const noexcept;
  bool spin(const Signal& signal, uint64_t value, Rank peer) noexcept;
  bool shares_core_with(Rank peer) const noexcept;
  bool give_way(const Signal& signal, uint64_t value) const noexcept;
  Status sleep(const Signal& signal, uint64_t value, Rank peer, Deadline deadline);
  uint64_t sleeping_on(const Signal& signal, Rank owner) const noexcept;
  void wake_sleepers(const Signal& signal) noexcept;
  void wake_all() noexcept;
  std::optional<Rank> lost_peer() const;
  Status check_wait(const Signal& signal, uint64_t value, Rank peer, Deadline deadline);
  Status fail(Code code, std::string text) noexcept;  // tells everyone, then returns it
  std::string late_text() const;
  Status find_disagreement() const;
  AnnouncedCall announced_by(Rank r) const noexcept;

  const Setup setup_;
  const PeerMapping mapping_;
  std::vector<ControlBlock*> blocks_;  // by rank
  const Birthplace birthplace_;
  bool slept_for_core_ = false;  // the last wait that was long found its peer on this rank's core
  uint64_t sequence_ = 0;        // of the last announcement
  Signature announced_{};        // in it
  uint8_t phase_ = 0;            // of it
  size_t payload_bytes_ = 0;     // of it
};

}  // namespace shardcomm
