// What ran when: a ring of timed events, from which timelines are drawn. Process-wide: ranks that are threads share it.
// Off by default; recording is then one load. Every function may be called from any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/status.h"
#include "shardcomm/types.h"

namespace shardcomm {

// Where a timeline draws an event. The values are part of the byte format below: append only.
enum class Lane : uint8_t { kGather, kCompute, kReduce, kFree, kOther };
inline constexpr int kLaneCount = 5;

SHARDCOMM_EXPORT std::string_view name(Lane lane) noexcept;  // "gather"

// Times are nanoseconds of the steady clock, which the processes of one machine share. bytes: moved, or freed.
struct SHARDCOMM_EXPORT TraceEvent {
  std::string name;
  Lane lane = Lane::kOther;
  Rank rank = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t bytes = 0;
  bool operator==(const TraceEvent&) const = default;
};

// A TraceEvent that owns nothing, so that recording allocates nothing.
struct SHARDCOMM_EXPORT TraceRecord {
  std::string_view name;  // the first 40 bytes are kept
  Lane lane = Lane::kOther;
  Rank rank = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t bytes = 0;
};

inline constexpr size_t kMostTraceEvents = size_t{1} << 24;  // a ring of 1.5 GiB

// Records from now on, the newest `capacity` events being kept. Events that were not taken are forgotten, except that
// starting again while a ring of at least that capacity is recording changes nothing.
SHARDCOMM_EXPORT Status trace_start(size_t capacity);
SHARDCOMM_EXPORT void trace_stop() noexcept;  // the events stay until taken
SHARDCOMM_EXPORT bool trace_enabled() noexcept;

SHARDCOMM_EXPORT int64_t trace_now_ns() noexcept;
SHARDCOMM_EXPORT void trace_record(const TraceRecord& record) noexcept;

// Removes and gives the events, ordered by begin_ns.
SHARDCOMM_EXPORT std::vector<TraceEvent> trace_take();
// Events overwritten before they were taken, since trace_start.
SHARDCOMM_EXPORT uint64_t trace_lost() noexcept;

// Pure functions: to send events to another rank, and to show them. Reading back damaged bytes is kDataLoss.
SHARDCOMM_EXPORT std::string trace_to_bytes(const std::vector<TraceEvent>& events);
SHARDCOMM_EXPORT Result<std::vector<TraceEvent>> trace_from_bytes(std::string_view bytes);
// Chrome's trace event format, which Perfetto reads: a process is a rank, a thread is a lane.
SHARDCOMM_EXPORT std::string trace_to_json(const std::vector<TraceEvent>& events);

}  // namespace shardcomm
