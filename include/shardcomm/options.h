// Every knob of the library, its default and its environment variable, in one table (src/base/options.cc).
// Options::from_env() is the only reader of the environment, and reads it once.
#pragma once
#include <chrono>
#include <string>
#include <string_view>

#include "shardcomm/status.h"

namespace shardcomm {

struct SHARDCOMM_EXPORT Options {
  std::string transports = "auto";  // SHARDCOMM_TRANSPORTS: ordered list, e.g. "shm"
  size_t chunk_bytes = 0;  // SHARDCOMM_CHUNK_BYTES: of attached sources, combined at a time; 0: planner chooses
  size_t staging_bytes = size_t{512} << 10;  // SHARDCOMM_STAGING_BYTES: shared staging ring of each rank
  std::string memory_access = "auto";  // SHARDCOMM_MEMORY_ACCESS: how peers read ordinary memory: auto (the fastest
                                       // here), attach (cross-memory attach, where allowed), attach_gathers
                                       // (reductions by staging), staging
  size_t copy_threads = 0;  // SHARDCOMM_COPY_THREADS: threads of a rank that move the bytes of one large operation;
                            // 0: a share of the cores
  std::chrono::milliseconds timeout{600'000};       // SHARDCOMM_TIMEOUT_MS: for one operation
  std::chrono::milliseconds init_timeout{120'000};  // SHARDCOMM_INIT_TIMEOUT_MS: for meeting and connecting
  std::chrono::microseconds spin{20};               // SHARDCOMM_SPIN_US: busy waiting before sleeping in the kernel
  std::string log_level = "warn";                   // SHARDCOMM_LOG: error, warn, info, debug, trace, off
  std::string algorithm;   // SHARDCOMM_ALGORITHM: engines or rows to choose from, "direct"; empty: all
  std::string tune_file;   // SHARDCOMM_TUNE_FILE: a MachineModel from `shardcomm bench --tune`; empty: typical figures
  std::string job_secret;  // SHARDCOMM_JOB_SECRET: authenticates connections; never logged, never in argv
  std::string dump_dir;  // SHARDCOMM_DUMP_DIR: where the flight recorder's dumps go (flight.h); empty: none on failure
  std::string dump_signal = "auto";  // SHARDCOMM_DUMP_SIGNAL: whether SIGUSR1 dumps: auto, on, off
  size_t trace_events = 0;           // SHARDCOMM_TRACE_EVENTS: size of the trace ring; 0 records nothing

  static Result<Options> from_env();
  // from_env(), then "timeout_ms=5000,transports=shm" over it: the table's names without prefix, lower case.
  // An unknown name or value is kInvalidArgument and lists the valid ones.
  static Result<Options> parse(std::string_view text);
  std::string describe() const;  // one line a knob: name, value, default, help; the secret is shown as "set"
};

}  // namespace shardcomm
