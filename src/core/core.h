// The room of src/core: where a call meets a plan. Core is everything that a communicator is made of, shared by its
// handle and by the operations still in flight, so that the handle may go first.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/arguments.h"
#include "core/blob.h"
#include "core/call_order.h"
#include "core/connection.h"
#include "core/health.h"
#include "core/host_executor.h"
#include "messages/messages.h"
#include "shardcomm/communicator.h"

namespace shardcomm {

class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(Communicator::Group self, const Options& options, Connection connection);

  // Gives a checked operation its signature and its epoch, records it, and hands it to the executor of the stream's
  // kind. Nothing of it need outlive the call. Any thread.
  Result<Work> submit(Operation& operation, StreamRef stream);
  // The same of a call of many tensors that has yet to be checked.
  template <class Given>  // GatherItem or ReduceItem
  Result<Work> submit_many(Collective collective, std::span<const Given> given, StreamRef stream,
                           std::string_view label, std::chrono::milliseconds timeout);
  // The same, checked and summed up, to be submitted again and again (prepared.cc). Asks no peer.
  template <class Given>
  Result<std::shared_ptr<PreparedOperation>> prepare_many(Collective collective, std::span<const Given> given,
                                                          std::string_view label) const;
  // Gives every rank's blob, in rank order: how windows and splits are agreed on. Takes its turn among the operations
  // and runs on the calling thread. What takes several exchanges reserves the communicator first.
  Result<std::vector<std::string>> exchange(std::string_view blob, std::string_view label);

  // Sends and receives (transfers.cc): checked here, recorded, and run on the calling thread or on the thread of the
  // stream, beside the collectives. Nothing of them need outlive the call.
  Result<Work> submit(std::span<const Transfer> transfers, StreamRef stream, std::chrono::milliseconds timeout);
  // Gives the blobs of some ranks, in the order of `ranks`, to these ranks, by messages with a tag of their own. Its
  // failure is theirs alone.
  Result<std::vector<std::string>> exchange_among(std::span<const Rank> ranks, std::string_view blob, int32_t tag,
                                                  Deadline deadline);

  // No call of another thread comes between those of this one while it lives.
  [[nodiscard]] CallOrder::Reservation reserve() noexcept { return CallOrder::Reservation(call_order_); }

  // Makes a timeout of a call that is zero the communicator's. kInvalidArgument if it is negative.
  Status resolve(std::chrono::milliseconds& timeout) const;
  // Zero: that of the options. kInvalidArgument if negative. Any thread.
  Status set_timeout(std::chrono::milliseconds timeout);

  // Where no call is being made.
  bool is_idle() const noexcept;
  TrafficCounters traffic() const noexcept;
  int copy_threads() const noexcept { return host_executor_.copy_threads(); }

  const Communicator::Group self;
  const Options options;
  const Topology topology;
  const std::shared_ptr<Fabric> fabric;
  const std::unique_ptr<FlightRecorder> flight;
  const Health health;
  Chooser chooser;

 private:
  std::chrono::milliseconds timeout() const noexcept {
    return std::chrono::milliseconds(timeout_ms_.load(std::memory_order_relaxed));
  }

  // A place in the order of calls, and when it was taken, on the recorder's clock.
  struct Taken {
    uint64_t epoch, now;
  };
  Taken take_epoch(const Call& call, std::string_view label) noexcept;
  Result<Work> run(Operation& operation);
  Result<Work> enqueue(const Operation& operation, StreamRef stream);
  Status run(std::span<const Transfer> transfers, std::span<const uint64_t> records, std::chrono::nanoseconds timeout);

  std::atomic<int64_t> timeout_ms_;  // of operations that bring none
  CallOrder call_order_;
  uint64_t next_epoch_ = 1;  // read and written in the order of calls, like the flight recorder's calls
  std::atomic<uint64_t> transfers_in_streams_{0};
  Messages messages_;
  HostExecutor host_executor_;
};

struct Communicator::Impl {
  std::shared_ptr<Core> core;
};

}  // namespace shardcomm
