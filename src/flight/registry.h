// The recorders of this process, for the signal that dumps them all.
#pragma once
#include "shardcomm/options.h"
#include "shardcomm/status.h"

namespace shardcomm {

class FlightRecorder;

// Beyond kMostListed recorders the rest go undumped by signals. unlist waits for a dump that is under way, up to a
// second; false: it still is, and the recorder's memory must stay.
inline constexpr int kMostListed = 256;
void list_recorder(const FlightRecorder* recorder) noexcept;
[[nodiscard]] bool unlist_recorder(const FlightRecorder* recorder) noexcept;

// Installs the handler of SIGUSR1 for "on", or for "auto" where the program has left the signal alone; once a process.
// With "on", a handler of the program that was there before runs after the dump.
Status install_dump_signal(const Options& options);

}  // namespace shardcomm
