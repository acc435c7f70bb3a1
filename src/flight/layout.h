// What a flight recorder's segment looks like: a page with the header, then kFlightCapacity calls and as many runs,
// both used in turn by epoch, then as many messages. The owner's process writes it, any process may read it at any
// moment, and neither waits for the other:
//
//   calls   written by the thread that makes the call, one at a time: the operation and when it was enqueued
//   runs    written by the thread whose turn it is, one at a time:     when it started, finished, and how it ended
//   messages  sends and receives, in turn by a number of their own; each is written by the threads that make and run it
//
// A record's first word is its version: 2 × epoch once it is whole, 2 × epoch − 1 while it is being written. Every word
// is stored with release and loaded with acquire, so a reader that sees a new word sees the odd version when it looks
// again. On x86 these are plain moves.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/call.h"

namespace shardcomm {

inline constexpr uint64_t kFlightMagic = 0x31746c666d6d6373;  // "scmmflt1" in memory
inline constexpr uint32_t kFlightLayout = 2;                  // raise when anything below changes
inline constexpr char kFlightName[] = "shardcomm-flight";     // of the memfd
inline constexpr size_t kFlightCapacity = 1024;
inline constexpr size_t kFlightLabelWords = kLabelBytes / sizeof(uint64_t);
inline constexpr size_t kFlightTextBytes = 512;
inline constexpr size_t kFlightHeaderBytes = 4096;

using FlightWord = std::atomic<uint64_t>;
static_assert(FlightWord::is_always_lock_free);

struct FlightCallRecord {
  FlightWord version;
  FlightWord call;  // as of recorded_call()
  FlightWord count;
  FlightWord enqueued;  // ticks
  FlightWord label[kFlightLabelWords];
};
static_assert(sizeof(FlightCallRecord) == 64);

// Collective, dtype, op, bytes of the label (8 bits each), root or number of items (32), as they are in a call. A
// mosaic's gather is recorded like any other.
inline constexpr uint64_t kRecordedAgreement = 255;  // instead of a collective
constexpr uint64_t recorded_call(const Call& call, size_t label_bytes) noexcept {
  const bool is_agreement = call.kind == CallKind::kAgreement;
  return (is_agreement ? kRecordedAgreement : static_cast<uint64_t>(call.collective)) |
         static_cast<uint64_t>(call.dtype) << 8 | static_cast<uint64_t>(call.op) << 16 | label_bytes << 24 |
         static_cast<uint64_t>(static_cast<uint32_t>(call.root_or_items)) << 32;
}

struct FlightRunRecord {
  FlightWord version;
  FlightWord started;  // ticks
  FlightWord outcome;  // a Code; stored before `finished`
  FlightWord finished;
};
static_assert(sizeof(FlightRunRecord) == 32);

struct FlightMessageRecord {
  FlightWord version;  // of the message's number
  FlightWord call;     // 1 for a send, dtype, unused, bytes of the label (8 bits each), tag (32)
  FlightWord peer;
  FlightWord count;
  FlightWord enqueued;  // ticks
  FlightWord started;
  FlightWord outcome;  // a Code; stored before `finished`
  FlightWord finished;
  FlightWord label[kFlightLabelWords];
};
static_assert(sizeof(FlightMessageRecord) == 96);

// Written before `magic`, except for what is atomic.
struct FlightHeader {
  std::atomic<uint64_t> magic;
  uint32_t layout;
  uint32_t capacity;
  uint64_t job;
  uint64_t communicator;
  int32_t rank;
  int32_t size;
  int32_t pid;             // in the owner's pid namespace
  uint32_t counter_ticks;  // 1: ticks are the processor's; 0: nanoseconds of the steady clock
  uint64_t created_ticks;
  int64_t created_steady_ns;
  int64_t wall_offset_ns;  // wall clock − steady clock, when created
  char host[64];
  char program[64];
  char version[16];
  alignas(64) std::atomic<uint32_t> failure;  // 0 none, 1 being written, 2 readable
  int32_t failure_code;
  char failure_text[kFlightTextBytes];
};
static_assert(sizeof(FlightHeader) <= kFlightHeaderBytes);

struct FlightSegment {
  union {
    FlightHeader header;
    char header_page[kFlightHeaderBytes];
  };
  FlightCallRecord calls[kFlightCapacity];
  FlightRunRecord runs[kFlightCapacity];
  FlightMessageRecord messages[kFlightCapacity];
};

// One operation, read whole. Owns nothing and is read without allocating, so that a signal handler can.
struct FlightEntry {
  uint64_t epoch;
  Call call;
  uint64_t enqueued, started, finished;  // ticks; 0: not yet
  int32_t outcome;                       // once finished
  char label[kLabelBytes];
};

// One send or receive, in the same way.
struct FlightMessageEntry {
  uint64_t number;
  MessageCall call;
  uint64_t enqueued, started, finished;
  int32_t outcome;
  char label[kLabelBytes];
};

// What slot epoch % kFlightCapacity holds. False where that is no whole record of this epoch: never used, used by
// another, or, after several looks, still being written (by a thread that a signal or a stop has interrupted).
bool read_entry(const FlightSegment& segment, uint64_t epoch, FlightEntry& entry) noexcept;
bool read_message(const FlightSegment& segment, uint64_t number, FlightMessageEntry& entry) noexcept;
uint64_t newest_message(const FlightSegment& segment) noexcept;
// 0 where nothing was recorded.
uint64_t newest_epoch(const FlightSegment& segment) noexcept;
// First of those that may still be there.
constexpr uint64_t oldest_epoch(uint64_t newest) noexcept {
  return newest > kFlightCapacity ? newest - kFlightCapacity + 1 : 1;
}

// Text of a fixed array, up to its closing zero.
std::string_view fixed_text(const char* text, size_t capacity) noexcept;

}  // namespace shardcomm
