// A Control that shares no memory with its peers: what one rank says to another is a message in the other's queue, as a
// put over a network would be. Each rank keeps a replica of what every rank has said, which only that rank's messages
// change. It stands in for a control over puts, so that tests show what an algorithm may rely on.
#pragma once
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "transport/transport.h"

namespace shardcomm::testing {

// What all ranks of one communicator share: a queue each.
class ControlNetwork {
 public:
  struct Put {
    enum class Kind : uint8_t { kAnnouncement, kFinishedReading, kAbort, kDeparture } kind;
    Rank from;
    uint64_t sequence = 0;
    Signature signature = {};
    uint8_t phase = 0;
    uint64_t epoch = 0;
    std::string label = {};
    std::vector<std::byte> payload = {};
    Status reason = {};
  };
  explicit ControlNetwork(int size) : queues_(static_cast<size_t>(size)) {}

  int size() const noexcept { return static_cast<int>(queues_.size()); }
  void send(Rank to, Put put);
  // The next message, or none where there is none until the deadline.
  std::optional<Put> receive(Rank rank, Deadline deadline);

 private:
  struct Queue {
    std::mutex mutex;
    std::condition_variable arrived;
    std::deque<Put> puts;
  };
  std::vector<Queue> queues_;
};

class QueueControl final : public Control {
 public:
  QueueControl(ControlNetwork& network, Rank rank);
  ~QueueControl() override;

  std::span<std::byte> payload() noexcept override { return payload_; }
  void announce(const Announcement& announcement) noexcept override;
  Status collect(TimeLimit& limit) override;
  std::span<const std::byte> payload_of(Rank peer) const noexcept override;
  void finish_reading() noexcept override;
  Status await_reader(Rank peer, TimeLimit& limit) override;
  void progress(uint64_t) noexcept override {}
  void abort(const Status& why) noexcept override;
  Status failure() const override;
  Status check_peers() noexcept override { return failure(); }

  // The peers that were awaited since this was asked last, in the order of the waits.
  std::vector<Rank> take_awaited() { return std::exchange(awaited_, {}); }

 private:
  struct Replica {  // of what one rank has said
    std::array<ControlNetwork::Put, 2> announcements;
    uint64_t announced = 0, finished = 0;
    bool departed = false;
  };
  const ControlNetwork::Put& last_of(Rank peer) const noexcept;
  void apply(ControlNetwork::Put put) const;
  void send_all(const ControlNetwork::Put& put) const;
  // Until `reached` holds of the replicas of ranks [first, end).
  Status wait(Rank first, Rank end, bool (*reached)(const Replica&, uint64_t sequence), TimeLimit& limit,
              std::string_view for_what);

  ControlNetwork& network_;
  const Rank rank_;
  uint64_t sequence_ = 0;
  std::vector<std::byte> payload_;
  std::vector<Rank> awaited_;
  mutable std::mutex mutex_;  // failure() and abort() come from any thread
  mutable std::vector<Replica> replicas_;
  mutable Status failure_;
};

}  // namespace shardcomm::testing
