// Part of the door transport/transport.h. Control is how the ranks of one communicator agree on each operation: every
// rank announces what it does, sees what all others have announced, and hands its peers' memory back when it has
// finished reading. It is the interface for all ways in which ranks can tell each other something; an algorithm knows
// none of them. Every implementation keeps three promises, so that memory that ranks map and memory that they can only
// put to serve alike:
//
//   - what a rank announces is written by that rank alone; a peer sees the memory itself or a replica of it
//   - sequence numbers only grow, so nothing is ever reset
//   - every wait ends: with what it waited for, with the communicator's failure, or at its deadline
//
// Thread rule: one operation at a time; abort(), failure() and check_peers() from any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/call.h"
#include "base/time_limit.h"
#include "shardcomm/status.h"
#include "shardcomm/types.h"

namespace shardcomm {

// Ranks whose builds lay out differently what they show each other must not meet: part of the version that they
// compare.
inline constexpr uint32_t kControlLayout = 7;

// The payload of one announcement has this room, whatever carries it. Small messages travel in it.
inline constexpr size_t kPayloadCapacity = (64 << 10) - 48;

// The part of a call that ranks must agree on before anything moves.
struct Signature {
  Call call;
  uint64_t detail = 0;  // hash of ragged counts, items and label
  bool operator==(const Signature&) const = default;
};

struct Announcement {
  Signature signature;
  uint8_t phase = 0;  // of a collective that announces more than once
  size_t payload_bytes = 0;
  uint64_t epoch = 0;           // for people, like the label
  std::string_view label = {};  // kLabelBytes - 1 of it are shown
};

class Control {
 public:
  virtual ~Control() = default;  // tells the peers that this rank has left; waits for nobody

  // --- an operation, once or several times: write the payload, announce, collect, read, finish, await ---
  virtual std::span<std::byte> payload() noexcept = 0;  // of the next announcement
  virtual void announce(const Announcement& announcement) noexcept = 0;
  // Until every rank has announced as often. kFailedPrecondition, with the same text on every rank, where the
  // signatures or phases differ.
  virtual Status collect(TimeLimit& limit) = 0;
  virtual std::span<const std::byte> payload_of(Rank peer) const noexcept = 0;  // from collect to the next but one
  virtual void finish_reading() noexcept = 0;  // this rank no longer reads what its peers offered
  // Until the peer no longer reads what this rank offered.
  virtual Status await_reader(Rank peer, TimeLimit& limit) = 0;

  // --- health ---
  virtual void progress(uint64_t finished_epoch) noexcept = 0;  // for the peers' messages about who is late
  virtual void abort(const Status& why) noexcept = 0;           // every rank, this one included, fails from now on
  virtual Status failure() const = 0;         // the reason, given here or at a peer; ok while there is none
  virtual Status check_peers() noexcept = 0;  // kPeerLost if a process ended without leaving in good order; tells all
};

// An announcement of one rank, for people.
struct AnnouncedCall {
  Signature signature;
  uint8_t phase;
  std::string_view label;
};
// kFailedPrecondition that names every rank's call: "op 7: rank 0 all_gather f32 1024; ranks 1,2 barrier".
Status disagreement(uint64_t epoch, std::span<const AnnouncedCall> by_rank);

}  // namespace shardcomm
