// Who is where: the records of a communicator's ranks side by side.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "flight/image.h"

namespace shardcomm {
namespace {

constexpr std::array<std::string_view, 6> kStateNames = {"idle", "queued", "waiting", "running", "failed", "ended"};

const FlightOperation* find(const FlightRecord& record, uint64_t epoch) {
  const auto place = std::lower_bound(record.operations.begin(), record.operations.end(), epoch,
                                      [](const FlightOperation& op, uint64_t e) { return op.epoch < e; });
  return place != record.operations.end() && place->epoch == epoch ? &*place : nullptr;
}

// How far a rank is: what it has finished, and what it has begun. Only ever grows.
struct Progress {
  uint64_t finished = 0, started = 0;
  int64_t reached_ns = 0;  // when it got there, on the wall clock
  uint64_t position() const { return 2 * started - (started > finished ? 1 : 0); }
};

Progress progress_of(const FlightRecord& record) {
  Progress progress;
  for (const FlightOperation& op : record.operations) {
    if (op.started_ns == 0) continue;
    progress.started = op.epoch;
    if (op.finished_ns != 0) progress.finished = op.epoch;
    progress.reached_ns = std::max(op.started_ns, op.finished_ns) + record.wall_offset_ns;
  }
  return progress;
}

std::optional<FlightOperation> current_of(const FlightRecord& record) {
  const FlightOperation* queued = nullptr;
  for (const FlightOperation& op : record.operations) {
    if (op.started_ns != 0 && op.finished_ns == 0) return op;
    if (op.started_ns == 0 && queued == nullptr) queued = &op;
  }
  return queued == nullptr ? std::nullopt : std::optional(*queued);
}

FlightState state_of(const FlightRecord& record, const std::optional<FlightOperation>& current, uint64_t all_started) {
  if (record.process_state == 'X' || record.process_state == 'Z') return FlightState::kEnded;
  if (!record.failure.ok()) return FlightState::kFailed;
  if (!current) return FlightState::kIdle;
  if (current->started_ns == 0) return FlightState::kQueued;
  return current->epoch > all_started ? FlightState::kWaiting : FlightState::kRunning;
}

// Operations before this one have left some rank's ring, so that ranks cannot be compared on them.
uint64_t first_comparable(const std::vector<FlightRecord>& records) {
  uint64_t first = 1;
  for (const FlightRecord& record : records) {
    if (!record.operations.empty()) first = std::max(first, record.operations.front().epoch);
  }
  return first;
}

std::string_view standing(const FlightOperation* op) {
  if (op == nullptr) return "has not called it";
  if (op->finished_ns != 0) return op->outcome == Code::kOk ? "finished" : code_name(op->outcome);
  return op->started_ns != 0 ? "started" : "enqueued, not started";
}

// "ranks 0,1 started; rank 2 has not called it": equal words together, in the order of the ranks.
class Sides {
 public:
  void add(Rank rank, std::string words) {
    for (Side& side : sides_) {
      if (side.words == words) return side.ranks.push_back(rank);
    }
    sides_.push_back({std::move(words), {rank}});
  }
  bool differ() const { return sides_.size() > 1; }
  std::string text() const {
    std::string text;
    for (const Side& side : sides_) {
      fmt::format_to(std::back_inserter(text), "{}rank{} {} {}", text.empty() ? "" : "; ",
                     side.ranks.size() > 1 ? "s" : "", fmt::join(side.ranks, ","), side.words);
    }
    return text;
  }

 private:
  struct Side {
    std::string words;
    std::vector<Rank> ranks;
  };
  std::vector<Side> sides_;
};

}  // namespace

std::string_view name(FlightState state) noexcept {
  const auto i = static_cast<size_t>(state);
  return i < kStateNames.size() ? kStateNames[i] : "unknown";
}

std::string FlightOperation::call() const { return text(call_of(*this), label); }

std::string FlightMessage::call() const {
  return text({.is_send = is_send, .dtype = dtype, .peer = peer, .tag = tag, .count = count}, label);
}

std::vector<FlightPlace> FlightGroup::places() const {
  std::vector<Progress> progress;
  for (const FlightRecord& record : records) progress.push_back(progress_of(record));
  uint64_t all_started = missing.empty() ? UINT64_MAX : 0, front = 0;
  for (const Progress& one : progress) {
    all_started = std::min(all_started, one.started);
    front = std::max(front, one.position());
  }
  // Since when some rank has been at the front.
  int64_t front_ns = INT64_MAX;
  for (const Progress& one : progress) {
    if (one.position() == front && one.reached_ns != 0) front_ns = std::min(front_ns, one.reached_ns);
  }
  std::vector<FlightPlace> places;
  for (size_t i = 0; i < records.size(); ++i) {
    const FlightRecord& record = records[i];
    FlightPlace place;
    place.finished_epoch = progress[i].finished;
    place.current = current_of(record);
    place.state = state_of(record, place.current, all_started);
    const int64_t now_ns = record.read_ns + record.wall_offset_ns;
    int64_t since_ns = progress[i].reached_ns;
    if (place.current && place.current->started_ns == 0) since_ns = place.current->enqueued_ns + record.wall_offset_ns;
    if (since_ns == 0) since_ns = record.created_ns + record.wall_offset_ns;
    place.for_ns = std::max<int64_t>(0, now_ns - since_ns);
    place.late = progress[i].position() < front && now_ns - kFlightLateNs > front_ns;
    places.push_back(std::move(place));
  }
  return places;
}

std::string FlightGroup::first_difference() const {
  const uint64_t first = first_comparable(records);
  std::set<uint64_t> epochs;
  for (const FlightRecord& record : records) {
    for (const FlightOperation& op : record.operations) {
      if (op.epoch >= first) epochs.insert(op.epoch);
    }
  }
  for (const uint64_t epoch : epochs) {
    Sides calls, standings;
    std::string call;
    for (const FlightRecord& record : records) {
      const FlightOperation* op = find(record, epoch);
      const bool left_out = op == nullptr && !record.operations.empty() && record.operations.back().epoch > epoch;
      if (left_out) continue;  // it was being written when it was read
      if (op != nullptr) calls.add(record.rank, call = op->call());
      standings.add(record.rank, std::string(standing(op)));
    }
    if (calls.differ()) return fmt::format("op {}: {}", epoch, calls.text());
    if (standings.differ()) return fmt::format("op {} {}: {}", epoch, call, standings.text());
  }
  return {};
}

std::vector<FlightGroup> group_flight_records(std::vector<FlightRecord> records) {
  std::map<std::pair<uint64_t, uint64_t>, std::map<Rank, FlightRecord>> by_communicator;
  for (FlightRecord& record : records) {
    auto& ranks = by_communicator[{record.job, record.communicator}];
    const auto place = ranks.find(record.rank);
    if (place == ranks.end()) {
      ranks.emplace(record.rank, std::move(record));
    } else if (place->second.read_ns < record.read_ns) {
      place->second = std::move(record);
    }
  }
  std::vector<FlightGroup> groups;
  for (auto& [key, ranks] : by_communicator) {
    FlightGroup group{.job = key.first, .communicator = key.second, .size = 1, .records = {}, .missing = {}};
    for (auto& [rank, record] : ranks) {
      group.size = std::max(group.size, record.size);
      group.records.push_back(std::move(record));
    }
    for (Rank rank = 0; rank < group.size; ++rank) {
      if (!ranks.contains(rank)) group.missing.push_back(rank);
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace shardcomm
