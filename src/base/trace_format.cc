// Events as bytes, to be sent to another rank, and as JSON, to be looked at.
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>
#include <utility>

#include "base/pod.h"
#include "shardcomm/trace.h"

namespace shardcomm {
namespace {

// Byte format, little-endian like every machine this runs on: magic, u64 count, then for each event
// u8 lane, i32 rank, i64 begin, i64 end, u64 bytes, u16 name length, name.
constexpr std::string_view kMagic = "sctrace1";
constexpr size_t kLeastEventBytes = 1 + 4 + 8 + 8 + 8 + 2;

template <class T>
void append(std::string& target, T value) {
  static_assert(std::is_integral_v<T>);
  target.append(as_bytes(value));
}

// Takes from the front of `bytes`; false, changing nothing, where too few are left.
template <class T>
bool take(std::string_view& bytes, T& value) {
  const std::optional<T> front = from_bytes<T>(bytes.substr(0, sizeof value));
  if (!front) return false;
  value = *front;
  bytes.remove_prefix(sizeof value);
  return true;
}

bool take_event(std::string_view& bytes, TraceEvent& event) {
  uint8_t lane = 0;
  uint16_t name_bytes = 0;
  if (!take(bytes, lane) || !take(bytes, event.rank) || !take(bytes, event.begin_ns) || !take(bytes, event.end_ns) ||
      !take(bytes, event.bytes) || !take(bytes, name_bytes)) {
    return false;
  }
  if (lane >= kLaneCount || bytes.size() < name_bytes) return false;
  event.lane = static_cast<Lane>(lane);
  event.name = bytes.substr(0, name_bytes);
  bytes.remove_prefix(name_bytes);
  return true;
}

// Wraps where the times are nonsense, which events from elsewhere may be.
int64_t duration_ns(const TraceEvent& event) {
  return static_cast<int64_t>(static_cast<uint64_t>(event.end_ns) - static_cast<uint64_t>(event.begin_ns));
}

nlohmann::ordered_json metadata(const char* what, Rank rank, Lane lane, nlohmann::ordered_json args) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", static_cast<int>(lane)}, {"args", std::move(args)}};
}

}  // namespace

std::string trace_to_bytes(const std::vector<TraceEvent>& events) {
  std::string bytes(kMagic);
  append(bytes, static_cast<uint64_t>(events.size()));
  for (const TraceEvent& event : events) {
    const std::string_view name = std::string_view(event.name).substr(0, UINT16_MAX);
    append(bytes, static_cast<uint8_t>(event.lane));
    append(bytes, event.rank);
    append(bytes, event.begin_ns);
    append(bytes, event.end_ns);
    append(bytes, event.bytes);
    append(bytes, static_cast<uint16_t>(name.size()));
    bytes += name;
  }
  return bytes;
}

Result<std::vector<TraceEvent>> trace_from_bytes(std::string_view bytes) {
  const Status damaged(Code::kDataLoss, "the bytes are not a trace");
  uint64_t count = 0;
  if (!bytes.starts_with(kMagic)) return damaged;
  bytes.remove_prefix(kMagic.size());
  if (!take(bytes, count) || count > bytes.size() / kLeastEventBytes) return damaged;
  std::vector<TraceEvent> events(count);
  for (TraceEvent& event : events) {
    if (!take_event(bytes, event)) return damaged;
  }
  if (!bytes.empty()) return damaged;
  return events;
}

std::string trace_to_json(const std::vector<TraceEvent>& events) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  std::set<Rank> ranks;
  std::set<std::pair<Rank, Lane>> lanes;
  for (const TraceEvent& event : events) {
    if (ranks.insert(event.rank).second) {
      list.push_back(
          metadata("process_name", event.rank, event.lane, {{"name", "rank " + std::to_string(event.rank)}}));
      list.push_back(metadata("process_sort_index", event.rank, event.lane, {{"sort_index", event.rank}}));
    }
    if (lanes.emplace(event.rank, event.lane).second) {
      list.push_back(metadata("thread_name", event.rank, event.lane, {{"name", name(event.lane)}}));
      list.push_back(
          metadata("thread_sort_index", event.rank, event.lane, {{"sort_index", static_cast<int>(event.lane)}}));
    }
    // The format counts in microseconds.
    list.push_back({{"ph", "X"},
                    {"name", event.name},
                    {"cat", name(event.lane)},
                    {"pid", event.rank},
                    {"tid", static_cast<int>(event.lane)},
                    {"ts", static_cast<double>(event.begin_ns) / 1e3},
                    {"dur", static_cast<double>(duration_ns(event)) / 1e3},
                    {"args", {{"bytes", event.bytes}}}});
  }
  const Json trace = {{"traceEvents", std::move(list)}, {"displayTimeUnit", "ms"}};
  return trace.dump(-1, ' ', false, Json::error_handler_t::replace);  // names may be cut inside a UTF-8 character
}

}  // namespace shardcomm
