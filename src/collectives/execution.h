// An operation and all that an engine needs to carry it out.
#pragma once
#include <cstddef>
#include <span>

#include "base/time_limit.h"
#include "collectives/operation.h"
#include "collectives/scratch.h"
#include "device/device.h"
#include "shardcomm/communicator.h"
#include "transport/transport.h"

namespace shardcomm {

// An operation as it runs, filled by name.
struct Execution {
  const Operation& operation;
  Fabric& fabric;

  StreamRef stream;  // all kernels are launched on it
  HostTeam& team;    // its threads help with large pieces
  Scratch& scratch;
  std::span<const Rank> reading_order;  // of the sources of a gather; this rank first
  size_t attach_chunk_bytes;            // how much of a source is attached at a time, before it is combined
  size_t node_bytes;                    // whole buffers of all ranks together, which compete for the caches

  TimeLimit& limit;          // of every wait
  TrafficCounters& traffic;  // the engines add what they move

  SourceLookup sources{*fabric.windows};
};

}  // namespace shardcomm
