// What each rank shows its peers in one communicator: a fixed layout in memory that all of them map. A rank writes only
// to its own block, except for `abort`, which any rank may set once. Signals only grow; a message slot is used by every
// second sequence number, which is safe because a rank announces sequence s + 1 only after it has collected s from
// everybody, and so after everybody has finished reading s − 1.
#pragma once
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "shardcomm/types.h"

namespace shardcomm {

inline constexpr uint32_t kControlLayout = 3;      // raise when anything below changes, or what messages hold
inline constexpr size_t kPayloadBytes = 64 << 10;  // of a message
inline constexpr size_t kLabelBytes = 32;          // with the closing zero
inline constexpr size_t kAbortTextBytes = 480;
inline constexpr int kStagingSlots = 4;

// A counter with a bell: waiters that gave up spinning sleep on its low half and are counted in `sleepers`.
struct Signal {
  std::atomic<uint64_t> value;
  std::atomic<uint32_t> sleepers;
};
struct alignas(64) PaddedSignal : Signal {};
static_assert(std::endian::native == std::endian::little, "the kernel sleeps on the low half of a signal");
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

// What ranks must agree on before anything moves.
struct Signature {
  uint8_t collective;
  uint8_t dtype;
  uint8_t op;
  uint8_t phase;  // of a collective that announces more than once
  int32_t root;   // broadcast; else the number of items
  uint64_t count;
  uint64_t detail;  // hash of ragged counts, items and label
  bool operator==(const Signature&) const = default;
};

// One announcement. A small payload shares the signal's cache line, so a small message is one line's way.
struct alignas(64) Message {
  Signal sequence;  // complete once value == the sequence number
  uint32_t payload_bytes;
  Signature signature;
  std::byte payload[kPayloadBytes - 48];
};
static_assert(sizeof(Message) == kPayloadBytes && offsetof(Message, payload) == 48);

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
  std::atomic<uint64_t> started;   // epoch of the operation now running or last run
  std::atomic<uint64_t> finished;  // epoch of the last operation that ended
  std::atomic<uint32_t> departed;  // 1: the communicator was destroyed in good order
};

// Followed in the same segment by PaddedSignal consumed[size] and then the staging ring.
struct ControlBlock {
  alignas(64) uint32_t layout;
  Rank rank;
  int32_t size;
  AbortWord abort;
  Progress progress;
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
