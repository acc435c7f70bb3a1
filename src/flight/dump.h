// A segment as JSON, async-signal-safe. json_reader.cc reads it back.
#pragma once
#include <string_view>

#include "flight/json_writer.h"
#include "flight/layout.h"

namespace shardcomm {

inline constexpr int kFlightFormatVersion = 1;  // of the JSON

void write_segment(JsonWriter& out, const FlightSegment& segment, std::string_view reason) noexcept;

}  // namespace shardcomm
