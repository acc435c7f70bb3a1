// The picture of one step: for each rank its gather, compute, reduce and free lanes over time, from recorded events.
#pragma once
#include <string>
#include <vector>

#include "shardcomm/communicator.h"
#include "shardcomm/trace.h"

namespace shardcomm::trainer {

// Collective: everybody's events on rank 0, ordered by begin; nothing on the others.
Result<std::vector<TraceEvent>> collect_events(Communicator& comm, const std::vector<TraceEvent>& mine);

// An SVG document. Time runs to the right, in milliseconds since the first event. Pure.
std::string timeline_svg(const std::vector<TraceEvent>& events, const std::string& title);

}  // namespace shardcomm::trainer
