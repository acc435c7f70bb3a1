// The room of src/core: where a call meets a plan. Everything a communicator is made of, shared by its handle and by
// the operations still in flight, so that the handle may go first.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/birthplace.h"
#include "bootstrap/bootstrap.h"
#include "collectives/collectives.h"
#include "core/known_calls.h"
#include "device/device.h"
#include "flight/flight.h"
#include "shardcomm/communicator.h"
#include "transport/transport.h"

namespace shardcomm {

// Lets operations through in the order of their epochs, whatever streams they were enqueued on.
class Turnstile {
 public:
  // Until every epoch before `epoch` has passed, or the communicator has failed.
  Status enter(uint64_t epoch, TimeLimit& limit, const Fabric& fabric) noexcept;
  void leave(uint64_t epoch) noexcept;
  uint64_t passed() const noexcept { return passed_.load(std::memory_order_acquire); }

 private:
  Status sleep(uint64_t epoch, TimeLimit& limit, const Fabric& fabric) noexcept;
  std::atomic<uint64_t> passed_{0};
  std::atomic<uint64_t> begun_{0};  // the operation whose turn it is, or was
  std::atomic<uint32_t> bell_{0};   // changes when somebody sleeps
  std::atomic<uint32_t> sleepers_{0};
};

// What connecting gives.
struct Connection {
  std::shared_ptr<Fabric> fabric;
  Topology topology;
  Chooser chooser;
  std::unique_ptr<FlightRecorder> flight;
  int channels = 1;  // of this rank
  std::vector<Rank> reading_order;
};

class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(Communicator::Group self, const Options& options, Connection connection);

  // Gives a checked operation its epoch and signature, and runs or enqueues it. Nothing of it need outlive the call.
  Result<Work> submit(Operation& operation, StreamRef stream);
  // The same of a call of many tensors that has yet to be checked, unless it is known.
  template <class Given>  // GatherItem or ReduceItem
  Result<Work> submit_many(Collective collective, std::span<const Given> given, StreamRef stream,
                           std::string_view label);
  // Everybody gets everybody's blob, in rank order: how windows and splits are agreed on. Runs on the calling thread.
  Result<std::vector<std::string>> exchange(std::string_view blob, std::string_view label);

  Status health() const;
  Status failure() const;  // of the fabric, and recorded
  void abort(const Status& why) noexcept;
  TrafficCounters traffic() const noexcept;
  int channels() const noexcept { return team_.size(); }

  const Communicator::Group self;
  const Options options;
  const Topology topology;
  const std::shared_ptr<Fabric> fabric;
  Chooser chooser;
  const std::unique_ptr<FlightRecorder> flight;
  uint64_t next_epoch = 1;
  Turnstile turnstile;

 private:
  friend struct AsyncOperation;
  Status here() const;  // kFailedPrecondition in a forked child
  // now: on the recorder's clock.
  Status run(Operation& operation, uint64_t now);
  template <class Name, class Body>
  Status in_turn(uint64_t epoch, Name&& name, uint64_t now, Body&& body);

  void count(const TrafficCounters& operation) noexcept;

  const size_t attach_chunk_bytes_;
  const std::vector<Rank> reading_order_;
  HostTeam team_;  // of the operation whose turn it is
  KnownCalls known_calls_;
  const Birthplace birthplace_;
  std::atomic<uint64_t> operations_{0}, bytes_sent_{0}, bytes_received_{0};  // written in turn, so by one at a time
};

struct Communicator::Impl {
  std::shared_ptr<Core> core;
};

// --- arguments.cc: every rule of communicator.h that needs no peer ---
Status check(const AllGatherArgs& args, Rank rank, int size);
Status check(const ReduceScatterArgs& args, Rank rank, int size);
Status check(const AllReduceArgs& args);
Status check(const BroadcastArgs& args, int size);
Status check(const AllToAllArgs& args, int size);
Status check(const AllGatherVArgs& args, Rank rank, int size);
Status check(const ReduceScatterVArgs& args, Rank rank, int size);
Status check(std::span<const GatherItem> items, Rank rank, int size);
Status check(std::span<const ReduceItem> items, Rank rank, int size);

// --- discovery.cc: how ranks find each other and connect ---
using Exchange = std::function<Result<std::vector<std::string>>(std::string_view step, std::string_view blob)>;
// `exchange` must give every member's blob in rank order; it is called kConnectExchanges times, or fewer on failure.
// A failure on one rank is the same failure on all.
inline constexpr int kConnectExchanges = 3;
struct Meeting {
  Exchange exchange;
  uint64_t job = 0;       // of the communicator that is split
  int most_channels = 0;  // 0: no limit; else that communicator's, whose ranks share the cores with these
};
Result<Connection> connect_ranks(Communicator::Group self, const Options& options, Deadline deadline,
                                 const Meeting& meeting);
// The first failure among blobs that are pack_status(): "rank 2: …".
Status first_failure(std::span<const std::string> blobs);

// --- blob.cc: length-prefixed fields ---
std::string pack(std::initializer_list<std::string_view> fields);
Result<std::vector<std::string>> unpack(std::string_view blob, size_t fields);
std::string pack_status(const Status& status);

}  // namespace shardcomm
