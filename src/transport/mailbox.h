// Part of the door transport/transport.h. A Mailbox carries messages between pairs of ranks, beside what all ranks of a
// communicator do together: each rank posts to any other, in order, and the other looks at what has come whenever it
// likes. Matching, and what a message means, is the business of src/messages.
//
// Thread rule: any thread may post, acknowledge and wait. One thread at a time looks at what came from one peer (peek,
// pop). What a rank posts is written by that rank alone, so that memory that ranks map and memory that they can only
// put to serve alike.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "shardcomm/types.h"

namespace shardcomm {

enum class EnvelopeKind : uint8_t {
  kEager,     // the payload is the message
  kDirect,    // the payload is a SourceEntry: where the receiver reads the message
  kStaged,    // the message comes in pieces once the receiver has acknowledged that it is ready
  kFragment,  // the payload is the next piece of a staged message
};

struct Envelope {
  int32_t tag;
  EnvelopeKind kind;
  DType dtype;
  uint16_t ticket;  // by which the receiver acknowledges; unused by eager messages
  uint64_t count;   // elements of the whole message; of a fragment: bytes
};
static_assert(sizeof(Envelope) == 16);

inline constexpr size_t kMailPayloadBytes = 4096;  // of one post
inline constexpr int kMailTickets = 64;            // messages from one rank to another that can await acknowledgement

class Mailbox {
 public:
  struct Incoming {
    Envelope envelope;
    std::span<const std::byte> payload;  // valid until pop()
  };
  virtual ~Mailbox() = default;

  // Posts unless the peer has yet to take as many posts as there is room for. The payload may be reused at once.
  virtual bool try_post(Rank peer, const Envelope& envelope, std::span<const std::byte> payload) noexcept = 0;
  // Whether there is a post of `peer` that has not been popped: any thread, as far as it can be told without a lock.
  virtual bool has_mail(Rank peer) const noexcept = 0;
  // The oldest of them.
  virtual std::optional<Incoming> peek(Rank peer) noexcept = 0;
  virtual void pop(Rank peer) noexcept = 0;
  // Adds to the count of acknowledgements that `peer` sees for one of its tickets.
  virtual void acknowledge(Rank peer, uint16_t ticket, uint64_t count) noexcept = 0;
  virtual uint64_t acknowledgements(Rank peer, uint16_t ticket) const noexcept = 0;  // by `peer`, ever
  // Calls `ready` again and again, whenever something has come for this rank or been popped by it. Returns whether it
  // gave true before the deadline; spins for a bounded time, then sleeps.
  virtual bool wait_until(const std::function<bool()>& ready, Deadline deadline) = 0;
  // Whether the peer has left the communicator in good order: nothing comes but what it has posted.
  virtual bool has_left(Rank peer) const noexcept = 0;
};

}  // namespace shardcomm
