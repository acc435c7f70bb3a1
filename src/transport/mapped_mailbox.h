// A Mailbox over memory that all ranks map. Behind its control block and staging ring each rank has a doorbell, for
// every peer the acknowledgements that it gives, and for every peer a ring of slots into which it posts.
//
//   slot        a sequence number, then envelope and payload: a message of up to 40 bytes is one cache line
//   taken       how many posts of a peer this rank has popped, ever, as far as it has said so; the poster reuses a slot
//               when it has been taken. It is said for every fourth post: the poster reads that cache line, and to
//               write it again costs a signal latency
//   doorbell    a word on which all waiting threads of the rank sleep. Peers ring it after a post or an
//   acknowledgement,
//               but only where somebody sleeps: the one word of a rank that others write, for it carries no data
//
// A sleeper counts itself and then looks for what it waits for; whoever posts stores the sequence number and then looks
// for sleepers. All four are sequentially consistent, so one of the two sees the other.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>

#include "transport/mailbox.h"
#include "transport/mapped_control.h"

namespace shardcomm {

class MappedMailbox final : public Mailbox {
 public:
  // The mail of this rank lies `offset_bytes` behind its control block, of zero-filled memory of bytes_for() bytes.
  MappedMailbox(MappedControl& control, size_t offset_bytes);
  static size_t bytes_for(int size) noexcept;

  bool try_post(Rank peer, const Envelope& envelope, std::span<const std::byte> payload) noexcept override;
  bool has_mail(Rank peer) const noexcept override;
  std::optional<Incoming> peek(Rank peer) noexcept override;
  void pop(Rank peer) noexcept override;
  void acknowledge(Rank peer, uint16_t ticket, uint64_t count) noexcept override;
  uint64_t acknowledgements(Rank peer, uint16_t ticket) const noexcept override;
  bool wait_until(const std::function<bool()>& ready, Deadline deadline) override;
  bool has_left(Rank peer) const noexcept override;

 private:
  struct Slot;
  struct Doorbell;
  struct Receipts;
  struct Outbox {
    std::mutex mutex;
    uint64_t posted = 0;
    uint64_t taken = 0;  // by the peer, when it was last looked at
  };
  std::byte* area(Rank owner) const noexcept;
  Doorbell& doorbell(Rank owner) const noexcept;
  Receipts& receipts(Rank owner, Rank sender) const noexcept;  // given by `owner` to `sender`
  Slot& slot(Rank sender, Rank receiver, uint64_t number) const noexcept;
  void ring(Rank peer) noexcept;
  bool spin(const std::function<bool()>& ready, Deadline deadline) const;

  MappedControl& control_;
  const size_t offset_bytes_;
  const std::unique_ptr<Outbox[]> outboxes_;               // by peer
  const std::unique_ptr<std::atomic<uint64_t>[]> popped_;  // by peer; written by whoever may peek
};

}  // namespace shardcomm
