// The door of src/device: what others need besides shardcomm/stream.h, which is where streams are described.
// Core completes the operations it has enqueued through Work::State.
//
// Every wait is bounded. A wait for a Work ends at that Work's deadline (plus kWaitGrace, so that the one who runs it
// may say why it failed); a wait for an Event, which has no deadline of its own, ends after kEventLimit. On the caller
// stream that is an error; a host stream logs it and goes on, since a stream that stands still helps nobody.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

#include "base/futex.h"
#include "device/host_team.h"
#include "shardcomm/status.h"
#include "shardcomm/stream.h"
#include "shardcomm/types.h"

namespace shardcomm {

inline constexpr std::chrono::seconds kEventLimit{600};  // the default of Options::timeout
inline constexpr std::chrono::seconds kWaitGrace{2};
inline constexpr size_t kHostStreamTasks = size_t{1} << 17;  // queued in one host stream; beyond, kUnavailable

// Is this the thread of that host stream? (On it, synchronize would wait for itself.)
bool on_thread_of(StreamRef stream) noexcept;

// The shared side of a Work. One thread finishes it, once; any thread may do the rest.
struct Work::State {
  using Callback = std::function<void(const Status&)>;

  // `operation` is kept by address: a literal. `deadline` is the operation's. One that is queued behind others may
  // begin with Deadline::max() and be given its real deadline when it starts.
  State(Rank rank, const char* operation, Deadline deadline) noexcept;

  void set_deadline(Deadline deadline) noexcept;
  Deadline deadline() const noexcept;

  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  // Two atomic exchanges, and a system call only if another thread sleeps; then the callbacks, on this thread.
  void finish(Status status) noexcept;
  // Calls `callback` once the work has finished, as Work::on_done says.
  Status on_done(Callback callback);

  bool done() const noexcept { return word_.load(std::memory_order_acquire) == kDone; }
  const Status& status() const noexcept { return status_; }  // only once done()

  // The work's status, or kTimedOut.
  Status synchronize(uint64_t epoch, Deadline deadline) const;
  // What streams do: until the deadline of the work itself, read anew when it passes.
  Status synchronize_own(uint64_t epoch) const;

 private:
  enum : uint32_t { kPending, kPendingWithSleepers, kDone };
  struct Waiting;
  static Waiting* closed() noexcept;
  static Waiting* in_order(Waiting* newest_first) noexcept;
  bool sleep_until_done(Deadline deadline) const noexcept;
  Status timed_out(uint64_t epoch) const;

  mutable std::atomic<uint32_t> word_{kPending};
  Rank rank_;
  const char* operation_;
  std::atomic<Deadline> deadline_;
  std::atomic<Waiting*> waiting_{nullptr};  // callbacks, the newest first; closed() once the work has finished
  Status status_;                           // written before word_ becomes kDone, never after
};

// A point in some stream; what kind of stream is the implementation's business. Any thread.
struct Event::State {
  virtual ~State() = default;
  virtual bool done() const noexcept = 0;
  virtual Status synchronize(Deadline deadline) const = 0;
};

}  // namespace shardcomm
