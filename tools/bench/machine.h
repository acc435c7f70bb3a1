// Figures of the machine that a collective cannot show: turns on one core, and reads of another process's memory.
#pragma once
#include "shardcomm/communicator.h"

namespace shardcomm::tools {

// The time from one rank's wake-up call to the other's being awake when both run on one core: half of a round trip.
// Collective; ranks 0 and 1 measure while the others wait. At least two ranks.
Result<double> turn_us(Communicator& comm);

struct AttachSpeed {
  double call_us = 0;  // of eight bytes
  double gb_s = 0;     // in pieces of 256 KiB
};
// Every rank reads ordinary memory of the next one. Collective; fails on all ranks alike, with the reason.
Result<AttachSpeed> attach_speed(Communicator& comm);

}  // namespace shardcomm::tools
