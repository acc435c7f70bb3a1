// The door of src/collectives. An algorithm is a function and a row, not a class. All of them are instances of one
// idea: every rank announces what it does and where its bytes are, everybody checks that all agree, and then each rank
// takes what is its own from its peers' memory. Who takes what is a value (geometry.h).
#pragma once
#include <span>
#include <string_view>

#include "planner/planner.h"
#include "shardcomm/communicator.h"
#include "transport/transport.h"

namespace shardcomm {

// One tensor of an operation. count: elements per shard (all_reduce, broadcast: of the whole; ragged forms: unused).
struct Item {
  const std::byte* in;
  std::byte* out;
  size_t count;
  DType dtype;
  ReduceOp op;
};

// A checked call, the same on every rank but for the addresses.
struct Operation {
  Collective collective;
  Rank root = 0;
  std::span<const Item> items;     // one; none for a barrier; many for the _many forms
  std::span<const size_t> counts;  // ragged forms only
  std::string_view label;
  uint64_t epoch = 0;
  Deadline deadline;
};

struct Execution {
  Fabric& fabric;
  const Operation& operation;
  TrafficCounters& traffic;
  size_t chunk_bytes;  // of pieces read by cross-memory attach
};

struct Algorithm {
  std::string_view name;
  Collective collective;
  TransportKind needs;
  CostFunction cost;
  Status (*run)(Execution& execution);
};
std::span<const Algorithm> algorithms() noexcept;

Workload workload_of(const Operation& operation, int size, SourceKind memory) noexcept;
// The row that the planner prefers; the same on every rank. Allocates nothing.
const Algorithm& select(const Workload& workload, const Topology& topology) noexcept;
CollectivePlan explain(const Workload& workload, const Topology& topology, std::string_view transport);

}  // namespace shardcomm
