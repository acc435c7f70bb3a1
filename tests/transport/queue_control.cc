#include "tests/transport/queue_control.h"

#include <algorithm>

namespace shardcomm::testing {

using Put = ControlNetwork::Put;

void ControlNetwork::send(Rank to, Put put) {
  Queue& queue = queues_[static_cast<size_t>(to)];
  {
    std::lock_guard lock(queue.mutex);
    queue.puts.push_back(std::move(put));
  }
  queue.arrived.notify_all();
}

std::optional<Put> ControlNetwork::receive(Rank rank, Deadline deadline) {
  Queue& queue = queues_[static_cast<size_t>(rank)];
  std::unique_lock lock(queue.mutex);
  if (!queue.arrived.wait_until(lock, deadline, [&] { return !queue.puts.empty(); })) return std::nullopt;
  Put put = std::move(queue.puts.front());
  queue.puts.pop_front();
  return put;
}

QueueControl::QueueControl(ControlNetwork& network, Rank rank)
    : network_(network), rank_(rank), payload_(kPayloadCapacity), replicas_(static_cast<size_t>(network.size())) {}

QueueControl::~QueueControl() { send_all({.kind = Put::Kind::kDeparture, .from = rank_}); }

void QueueControl::send_all(const Put& put) const {
  for (Rank to = 0; to < network_.size(); ++to) network_.send(to, put);
}

void QueueControl::announce(const Announcement& announcement) noexcept {
  ++sequence_;
  const auto end = payload_.begin() + static_cast<std::ptrdiff_t>(announcement.payload_bytes);
  send_all({.kind = Put::Kind::kAnnouncement,
            .from = rank_,
            .sequence = sequence_,
            .signature = announcement.signature,
            .phase = announcement.phase,
            .epoch = announcement.epoch,
            .label = std::string(kept_label(announcement.label)),
            .payload = std::vector(payload_.begin(), end)});
}

void QueueControl::apply(Put put) const {
  std::lock_guard lock(mutex_);
  Replica& replica = replicas_[static_cast<size_t>(put.from)];
  switch (put.kind) {
    case Put::Kind::kAnnouncement:
      replica.announced = put.sequence;
      replica.announcements[put.sequence & 1] = std::move(put);
      break;
    case Put::Kind::kFinishedReading: replica.finished = put.sequence; break;
    case Put::Kind::kDeparture: replica.departed = true; break;
    case Put::Kind::kAbort:
      if (failure_.ok()) failure_ = put.reason;
      break;
  }
}

Status QueueControl::wait(Rank first, Rank end, bool (*reached)(const Replica&, uint64_t), TimeLimit& limit,
                          std::string_view for_what) {
  for (;;) {
    std::string late;
    {
      std::lock_guard lock(mutex_);
      if (!failure_.ok()) return failure_;
      for (Rank r = first; r < end; ++r) {
        const Replica& replica = replicas_[static_cast<size_t>(r)];
        if (reached(replica, sequence_)) continue;
        if (replica.departed) return Status(Code::kPeerLost, "rank " + std::to_string(r) + " left the communicator");
        late += " rank " + std::to_string(r);
      }
    }
    if (late.empty()) return {};
    std::optional<Put> put = network_.receive(rank_, limit.deadline());
    if (!put) {
      const Status why(Code::kTimedOut,
                       "rank " + std::to_string(rank_) + ": waiting for" + late + " " + std::string(for_what));
      abort(why);
      return why;
    }
    apply(std::move(*put));
  }
}

Status QueueControl::collect(TimeLimit& limit) {
  const auto has_arrived = [](const Replica& replica, uint64_t sequence) { return replica.announced >= sequence; };
  SHARDCOMM_TRY(wait(0, network_.size(), has_arrived, limit, "to arrive"));
  std::vector<AnnouncedCall> calls;
  bool agreed = true;
  for (Rank r = 0; r < network_.size(); ++r) {
    const Put& put = last_of(r);
    calls.push_back({.signature = put.signature, .phase = put.phase, .label = put.label});
    agreed = agreed && put.signature == last_of(rank_).signature && put.phase == last_of(rank_).phase;
  }
  return agreed ? Status() : disagreement(last_of(rank_).epoch, calls);
}

const Put& QueueControl::last_of(Rank peer) const noexcept {
  return replicas_[static_cast<size_t>(peer)].announcements[sequence_ & 1];
}

std::span<const std::byte> QueueControl::payload_of(Rank peer) const noexcept { return last_of(peer).payload; }

void QueueControl::finish_reading() noexcept {
  send_all({.kind = Put::Kind::kFinishedReading, .from = rank_, .sequence = sequence_});
}

Status QueueControl::await_reader(Rank peer, TimeLimit& limit) {
  const auto has_finished = [](const Replica& replica, uint64_t sequence) { return replica.finished >= sequence; };
  awaited_.push_back(peer);
  return wait(peer, peer + 1, has_finished, limit, "to finish reading");
}

void QueueControl::abort(const Status& why) noexcept {
  send_all({.kind = Put::Kind::kAbort, .from = rank_, .reason = why});
  std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = why;
}

Status QueueControl::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace shardcomm::testing
