// A record as values.
#pragma once
#include "flight/layout.h"
#include "shardcomm/flight.h"

namespace shardcomm {

// The call of a recorded operation, as ranks compare it.
Call call_of(const FlightOperation& operation) noexcept;

// Everything that the segment holds.
FlightRecord record_of(const FlightSegment& segment);

// A segment of any process, found as an open file of it: "/proc/123/fd/7". kDataLoss where it is none or is damaged,
// kUnsupported where another version wrote it, kUnavailable where it is still being made.
struct SegmentFile {
  uint64_t inode = 0;  // the same segment may be open in several processes
  FlightRecord record;
};
Result<SegmentFile> read_segment_file(const std::string& path);

}  // namespace shardcomm
