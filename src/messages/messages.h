// The door of src/messages: sends and receives, matched in order by pair of ranks and tag. They have no part in the
// order of a communicator's collectives, and any of its threads may make them.
//
//   up to kBufferedBytes      travels in the receiver's mailbox; the send ends when it has been posted. So does up to
//                             kMailPayloadBytes of memory that the receiver does not map
//   more, where the receiver  the send posts where they lie; the receiver copies them once, from there, and
//   reads the sender's memory acknowledges; then the send ends
//   more, elsewhere           the send posts that there is a message; the receiver acknowledges once it has met the
//                             receive that wants it; the message comes through the mailbox in pieces
//
// Whoever looks into its mail for one message takes out what has come before it and keeps that for the receives to
// come, so that no message holds up one with another tag.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/call.h"
#include "base/time_limit.h"
#include "shardcomm/status.h"
#include "transport/transport.h"

namespace shardcomm {

// A checked send or receive.
struct Transfer {
  MessageCall call;
  std::byte* data;  // count elements; only read where they are sent
  std::string_view label;
  size_t bytes() const noexcept { return call.count * size_of(call.dtype); }
};

inline constexpr size_t kBufferedBytes = 1024;

class Inbox;

// Of one rank of one communicator. Any thread.
class Messages {
 public:
  // The fabric outlives this.
  explicit Messages(Fabric& fabric);
  ~Messages();

  // Carries out all of them, none waiting for another, except that those with equal pair and tag are matched in the
  // order given. A failure is one of the communicator, which the caller records.
  Status run(std::span<const Transfer> transfers, TimeLimit& limit);

  uint64_t bytes_sent() const noexcept { return bytes_sent_.load(std::memory_order_relaxed); }
  uint64_t bytes_received() const noexcept { return bytes_received_.load(std::memory_order_relaxed); }
  uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }  // that have ended well

 private:
  friend class TransferGroup;
  Fabric& fabric_;
  const std::unique_ptr<Inbox[]> inboxes_;                  // by peer
  const std::unique_ptr<std::atomic<uint64_t>[]> tickets_;  // by peer; bit i: ticket i is in use
  std::atomic<uint64_t> bytes_sent_{0}, bytes_received_{0}, count_{0};
};

}  // namespace shardcomm
