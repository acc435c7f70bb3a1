// How ps and dump write what they share.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "shardcomm/flight.h"

namespace shardcomm::tools {

std::string duration_text(int64_t ns);           // "850 ns", "12.3 us", "4.56 s", "3 min 20 s"
std::string wall_text(int64_t ns);               // of the wall clock: "12:00:01.123456", local time
std::string title_of(const FlightGroup& group);  // "communicator 0123456789abcdef, 4 ranks on host a"
std::string process_state_text(char state);      // "stopped"; empty for a healthy one
void print_troubles(const FlightGroup& group);   // indented lines: missing ranks, failures, the first difference

}  // namespace shardcomm::tools
