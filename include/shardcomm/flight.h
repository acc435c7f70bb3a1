// The flight recorder, as read from outside. Every communicator keeps its last 1,024 operations, and as many sends and
// receives, where any process of the same user (or root) can read them, while the program runs, hangs, or is stopped:
// `shardcomm ps` and `shardcomm dump` do. With the option dump_dir each rank also writes them to a JSON file when its
// communicator fails, and on SIGUSR1. Free functions: any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/plan.h"
#include "shardcomm/status.h"
#include "shardcomm/types.h"

namespace shardcomm {

// Times are nanoseconds of the steady clock of the rank's machine; 0: not yet.
struct SHARDCOMM_EXPORT FlightOperation {
  uint64_t epoch = 0;
  std::optional<Collective> collective;  // none: ranks agree on a window or a split, which the label names
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  uint64_t count = 0;  // elements, as in the call; of all ranks or items together for the ragged and _many forms
  Rank root = 0;       // of the forms that have one
  uint32_t items = 1;  // of a _many form
  std::string label;
  int64_t enqueued_ns = 0;
  int64_t started_ns = 0;
  int64_t finished_ns = 0;
  Code outcome = Code::kOk;  // once finished

  std::string call() const;  // "all_gather f32 1024 'gather h.3'": what ranks must agree on
};

// A send or receive, which has no epoch. Times as above.
struct SHARDCOMM_EXPORT FlightMessage {
  uint64_t number = 0;  // of this rank's, in the order in which they were made
  bool is_send = false;
  DType dtype = DType::kU8;
  uint64_t count = 0;
  Rank peer = 0;
  int32_t tag = 0;
  std::string label;
  int64_t enqueued_ns = 0;
  int64_t started_ns = 0;
  int64_t finished_ns = 0;
  Code outcome = Code::kOk;

  std::string call() const;  // "recv f32 1024 from rank 0 tag 3 'label'"
};

// One rank of one communicator.
struct SHARDCOMM_EXPORT FlightRecord {
  uint64_t job = 0;           // of the communicator that this one was split from; else its own
  uint64_t communicator = 0;  // equal on its ranks, and on no others anywhere
  Rank rank = 0;
  int size = 1;
  int32_t pid = 0;
  std::string host, program;
  std::string version;       // of the shardcomm that wrote it
  std::string reason;        // of a dump: failure, signal; "read" from a running process
  char process_state = '?';  // as in /proc/PID/stat when read: R, S, T (stopped), Z, …; X: has ended; ?: unknown
  int64_t created_ns = 0;
  int64_t read_ns = 0;
  int64_t wall_offset_ns = 0;               // wall clock − steady clock, when the communicator was made
  Status failure;                           // of the communicator, as this rank knows it
  std::vector<FlightOperation> operations;  // ascending epochs; what was being written just then is left out
  std::vector<FlightMessage> messages;      // ascending numbers; likewise
};

// --- where records come from ---

struct SHARDCOMM_EXPORT FlightScan {
  std::vector<FlightRecord> records;
  size_t denied_count = 0;            // processes that this user may not look into
  std::vector<std::string> problems;  // what looked like a record and was none
};
// Every communicator of this machine's processes, as far as permitted. Processes that end meanwhile are left out.
SHARDCOMM_EXPORT Result<FlightScan> scan_flight_records();
// Of one process; it need not run: stopped and deadlocked ones can be read. kUnavailable where it has no communicator.
SHARDCOMM_EXPORT Result<std::vector<FlightRecord>> read_flight_records(int32_t pid);
// A dumped file, or what flight_to_json wrote: kDataLoss, with the place, where it is damaged.
SHARDCOMM_EXPORT Result<std::vector<FlightRecord>> read_flight_file(const std::string& path);
SHARDCOMM_EXPORT Result<std::vector<FlightRecord>> parse_flight_json(std::string_view text);

// --- who is where ---

enum class FlightState : uint8_t {
  kIdle,     // in no operation
  kQueued,   // has operations enqueued, none of which runs
  kWaiting,  // in an operation that some rank has not begun
  kRunning,  // in an operation that all ranks have begun
  kFailed,   // the communicator has failed
  kEnded,    // the process has
};
SHARDCOMM_EXPORT std::string_view name(FlightState state) noexcept;  // "waiting"

struct SHARDCOMM_EXPORT FlightPlace {
  FlightState state = FlightState::kIdle;
  uint64_t finished_epoch = 0;             // 0: none
  std::optional<FlightOperation> current;  // running, else the first enqueued
  int64_t for_ns = 0;                      // how long it has been in that state
  bool late = false;                       // others have been ahead for more than kFlightLateNs
};
inline constexpr int64_t kFlightLateNs = 100'000'000;  // ranks of a healthy job differ for less

// The ranks of one communicator.
struct SHARDCOMM_EXPORT FlightGroup {
  uint64_t job = 0;
  uint64_t communicator = 0;
  int size = 1;
  std::vector<FlightRecord> records;  // by rank; the newest of each
  std::vector<Rank> missing;          // ranks without a record

  std::vector<FlightPlace> places() const;  // of `records`
  // The first operation that ranks differ on, by what they call or by how far they got, in words: "op 7: ranks 0,1,3
  // all_gather f32 1024; rank 2 all_reduce bf16 512 sum". Empty where they are all at the same place.
  std::string first_difference() const;
};
// Ordered by job and communicator.
SHARDCOMM_EXPORT std::vector<FlightGroup> group_flight_records(std::vector<FlightRecord> records);

// All of it, with the places, as one JSON object.
SHARDCOMM_EXPORT std::string flight_to_json(const std::vector<FlightGroup>& groups);

}  // namespace shardcomm
