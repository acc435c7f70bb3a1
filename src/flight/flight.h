// The door of src/flight: the flight recorder of one rank of one communicator. It keeps the last 1,024 operations in a
// memfd that other processes find through /proc and read without this one's help (shardcomm/flight.h), so that a
// program that hangs can still be asked what it waits for. Recording takes no lock, allocates nothing and makes no
// system call.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/birthplace.h"
#include "base/call.h"
#include "shardcomm/options.h"
#include "shardcomm/status.h"
#include "shardcomm/types.h"

namespace shardcomm {

struct FlightSegment;

class FlightRecorder {
 public:
  struct Place {
    uint64_t job = 0;           // of the communicator that this one was split from; given 0: its own
    uint64_t communicator = 0;  // equal on its ranks, and on no others
    Rank rank = 0;
    int size = 1;
  };
  // Takes one file descriptor. Also takes care that a signal dumps the records, as options.dump_signal says.
  static Result<std::unique_ptr<FlightRecorder>> create(const Place& place, const Options& options);
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;
  ~FlightRecorder();

  const Place& place() const noexcept { return place_; }
  uint64_t now() const noexcept;  // the recorder's clock; about 12 ns

  // enqueue: one thread at a time, epochs ascending from 1. start and finish: one operation at a time, and only of
  // those that run. None of them in a forked child.
  void enqueue(uint64_t epoch, const Call& call, std::string_view label, uint64_t now) noexcept;
  void start(uint64_t epoch, uint64_t now) noexcept;
  void finish(uint64_t epoch, Code outcome) noexcept;

  // A send or receive: any thread. enqueue gives its number, for the others; `starts` where it runs at once.
  uint64_t enqueue(const MessageCall& call, std::string_view label, bool starts) noexcept;
  void start_message(uint64_t number) noexcept;
  void finish_message(uint64_t number, Code outcome) noexcept;

  // The communicator's failure; only the first is kept, and dumped if there is a dump_dir. Any thread.
  void fail(const Status& why) noexcept;

  // As JSON to the dump_dir, or to standard error where there is none. Async-signal-safe; any thread.
  void dump(std::string_view reason) const noexcept;

  const FlightSegment& segment() const noexcept { return *segment_; }

 private:
  FlightRecorder() = default;

  FlightSegment* segment_ = nullptr;
  int fd_ = -1;
  bool counter_ticks_ = false;
  std::atomic<uint64_t> messages_{0};  // enqueued so far
  Place place_;
  Birthplace birthplace_;
  // Of dumps; made beforehand, since a signal handler cannot. Empty without a dump_dir.
  std::string file_, unfinished_file_;
};

}  // namespace shardcomm
