// Executes the operations of a communicator on host threads: on the caller's, or on the thread of a host stream. One
// operation runs at a time, in the order of epochs; its thread waits for the peers and launches the kernels itself. An
// executor of another kind, which only enqueues on a device stream and counts epochs in device memory, has its place
// beside this one: Core hands an operation to the executor of its stream's kind.
#pragma once
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "collectives/collectives.h"
#include "core/health.h"
#include "core/turnstile.h"
#include "device/device.h"
#include "flight/flight.h"

namespace shardcomm {

class HostExecutor {
 public:
  struct Setup {
    size_t chunk_bytes;               // Options::chunk_bytes
    int copy_threads;                 // that move the bytes of a large operation, the operation's own included
    std::vector<Rank> reading_order;  // of the sources of a gather; this rank first
    Fabric& fabric;                   // this and the following outlive the executor
    Chooser& chooser;
    FlightRecorder& flight;
    const Health& health;
  };
  explicit HostExecutor(Setup setup);

  // On the calling thread, with the limit that the operation brings; returns when done. `now`: on the recorder's clock,
  // read just now by a caller that has also looked for a failure; kNotNow: the executor does both when the turn has
  // come. A failure here is a failure of the communicator.
  static constexpr uint64_t kNotNow = 0;
  Status run(const Operation& operation, uint64_t now);
  // An operation with everything that it needs while it waits in a stream. Nothing of `operation` need outlive the
  // call; `owner` keeps this executor alive until it has run.
  struct AsyncOperation;
  using Queued = std::shared_ptr<AsyncOperation>;
  Queued prepare(const Operation& operation, std::shared_ptr<const void> owner);
  // On the thread of `stream`, with the limit that the operation brings. kUnavailable when the stream's queue is full:
  // then the epoch has not been taken.
  Result<Work> enqueue(Queued queued, uint64_t epoch, StreamRef stream);

  // Something else that all ranks do together in the order of operations.
  struct Agreement {
    uint64_t epoch;
    std::string_view label;
    std::chrono::nanoseconds timeout;
    std::function<Status(TimeLimit& limit)> body;
  };
  Status run(const Agreement& agreement);

  bool is_idle(uint64_t next_epoch) const noexcept { return turnstile_.passed() + 1 >= next_epoch; }
  TrafficCounters traffic() const noexcept;
  int copy_threads() const noexcept { return team_.size(); }

 private:
  struct Turn {
    Turn(uint64_t epoch, std::string_view name, std::chrono::nanoseconds timeout) noexcept
        : epoch(epoch), name(name), limit(timeout) {}
    const uint64_t epoch;
    const std::string_view name;  // for people
    TimeLimit limit;
    TrafficCounters traffic{.operations = 1};
    bool has_begun = false;
  };
  Status begin(Turn& turn, uint64_t now);
  Status end(Turn& turn, Status status);
  void count(const TrafficCounters& operation) noexcept;

  const Setup setup_;
  Turnstile turnstile_;
  HostTeam team_;                                                            // of the operation whose turn it is
  Scratch scratch_;                                                          // of the same
  std::atomic<uint64_t> operations_{0}, bytes_sent_{0}, bytes_received_{0};  // written by one thread at a time
};

}  // namespace shardcomm
