// The memory that each rank shows its peers in one communicator, in a fixed layout that all of them map. The owner of a
// block is the only one who writes to it, so that a peer may as well see a replica that the owner keeps up to date. The
// one exception is `abort`, which any rank sets once. Signals only grow; a message slot is used by every second
// sequence number, which is safe because a rank announces sequence s + 1 only after it has collected s from everybody,
// and so after everybody has finished reading s - 1. A change of anything below, or of what messages hold, raises
// kControlLayout (control.h).
#pragma once
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "shardcomm/types.h"
#include "transport/control.h"

namespace shardcomm {

inline constexpr size_t kAbortTextBytes = 480;

// A counter that only grows. Waiters that gave up spinning sleep on its low half and say so in their own block.
struct Signal {
  std::atomic<uint64_t> value;
};
struct alignas(64) PaddedSignal : Signal {};
static_assert(std::endian::native == std::endian::little, "the kernel sleeps on the low half of a signal");
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// An announcement. A small payload shares the signal's cache line, so a small message costs one cache-line transfer.
struct alignas(64) Message {
  Signal sequence;  // complete once value == the sequence number
  uint32_t payload_bytes;
  uint8_t phase;
  alignas(16) Signature signature;
  alignas(16) std::byte payload[kPayloadCapacity];
};
static_assert(sizeof(Message) == kPayloadCapacity + 48 && offsetof(Message, payload) == 48);

// For people: what the message in the same slot was about. Read only to explain a failure.
struct alignas(64) Note {
  uint64_t epoch;
  char label[kLabelBytes];
};

struct alignas(64) AbortWord {
  std::atomic<uint32_t> state;  // 0 none, 1 being written, 2 readable
  int32_t code;
  char text[kAbortTextBytes];
};

struct alignas(64) Progress {
  std::atomic<uint64_t> started;   // epoch of the operation that this rank announced last
  std::atomic<uint64_t> finished;  // epoch of the last operation that ended
  std::atomic<uint32_t> core;      // + 1, that this rank announced on last; 0: unknown
  std::atomic<uint32_t> departed;  // 1: the communicator was destroyed in good order
};

// The signal that the owner of the block sleeps on, if any. Whoever raises a signal looks here, in the blocks of the
// ranks that may wait for it, and makes a system call only where one of them sleeps.
struct alignas(64) Sleeper {
  std::atomic<uint64_t> signal;  // 0: awake; else rank + 1 in the high half, the offset in that rank's block in the low
};

// Followed in the same segment by PaddedSignal consumed[size] and then the staging ring.
struct ControlBlock {
  alignas(64) uint32_t layout;
  Rank rank;
  int32_t size;
  AbortWord abort;
  Progress progress;
  Sleeper sleeper;
  Note notes[2];
  PaddedSignal done;    // last sequence whose bytes this rank has finished reading from its peers
  PaddedSignal staged;  // chunks this rank has placed in its staging ring, ever
  Message messages[2];
};

inline PaddedSignal* consumed_signals(
    ControlBlock* block) noexcept {  // [peer]: chunks this rank has taken from peer's ring
  return reinterpret_cast<PaddedSignal*>(block + 1);
}
constexpr size_t staging_offset(int size) noexcept {
  constexpr size_t kPage = 4096;
  return (sizeof(ControlBlock) + sizeof(PaddedSignal) * static_cast<size_t>(size) + kPage - 1) / kPage * kPage;
}

}  // namespace shardcomm
