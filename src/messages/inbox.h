// The messages that have come from one peer and have not met their receive yet, and the pieces of those that come in
// pieces.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "messages/messages.h"

namespace shardcomm {

// Any thread.
class Inbox {
 public:
  void open(Mailbox& mailbox, Rank peer) noexcept {
    mailbox_ = &mailbox;
    peer_ = peer;
  }

  // A message that has met its receive.
  struct Found {
    Envelope envelope;
    SourceEntry source;  // of a direct one
  };
  // Whether find() may find something: without a lock.
  bool may_find() const noexcept {
    return waiting_count_.load(std::memory_order_seq_cst) != 0 || mailbox_->has_mail(peer_);
  }
  // Finds the oldest message with the receive's tag; of an eager one the bytes are then in place, if dtype and count
  // are those of the receive.
  std::optional<Found> find(const Transfer& receive);
  // The pieces of a staged message go to `target` from now on.
  void expect_fragments(uint16_t ticket, std::byte* target, size_t bytes);
  size_t missing_bytes(uint16_t ticket);
  void forget_fragments(uint16_t ticket) noexcept;
  // Takes everything out of the mailbox, so that the peer has room to post.
  void drain();
  std::string waiting_text();  // "send f32 5 tag 7, send u8 1 tag 9", for people; empty where nothing waits

 private:
  struct Waiting {
    Envelope envelope;
    std::vector<std::byte> payload;
  };
  struct Fragments {
    std::byte* target = nullptr;
    size_t missing_bytes = 0;
  };
  bool take_fragment(const Mailbox::Incoming& incoming) noexcept;
  void keep(const Mailbox::Incoming& incoming);

  Mailbox* mailbox_ = nullptr;
  Rank peer_ = 0;
  std::atomic<size_t> waiting_count_{0};
  std::mutex mutex_;            // of all that follows, and of looking at the peer's posts
  std::list<Waiting> waiting_;  // in the order in which they came
  std::array<Fragments, kMailTickets> fragments_;
};

}  // namespace shardcomm
