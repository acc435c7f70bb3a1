// The door of src/planner. Pure: no threads, no devices, no clocks, no environment.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "shardcomm/plan.h"

namespace shardcomm {

// What an operation asks of the machine.
struct Workload {
  Collective collective;
  size_t whole_bytes;      // the whole buffer: all shards; for all_reduce and broadcast the data itself
  size_t announced_bytes;  // no rank would have to show its peers more
  SourceKind memory;       // what a large operation reads
  bool operator==(const Workload&) const = default;
};

// Alpha-beta (Hockney 1994): a fixed part and a part that grows with the bytes. Infinite where it cannot run.
struct Cost {
  double latency_us;
  double transfer_us;
  double total_us() const noexcept { return latency_us + transfer_us; }
};
using CostFunction = Cost (*)(const Workload& workload, const Topology& topology, const MachineModel& machine);

struct Candidate {
  std::string_view engine;
  CostFunction cost;
};

// Where operations run.
struct Site {
  Topology topology;
  MachineModel machine;
};

// Index of the cheapest candidate; the first of equals. None where no candidate can run it.
std::optional<size_t> choose(const Workload& workload, const Site& site,
                             std::span<const Candidate> candidates) noexcept;
// The choice with its reasons; chunk_bytes and transport are left to the caller. `best`: as chosen.
CollectivePlan explain_choice(const Workload& workload, const Site& site, std::span<const Candidate> candidates,
                              size_t best);

// The order in which rank `me` reads the memory of all ranks, its own first. domain_of: by rank, equal for ranks that
// are close to each other. First the own domain, then one other after the other, beginning in each at the place that
// `me` has in its own: so ranks of equally large domains never read the same source at the same step, and a domain's
// ranks read one other domain at a time, no two the same. Where there is one domain, or a domain each, a rotation over
// all ranks.
std::vector<Rank> reading_order(Rank me, std::span<const int> domain_of);

}  // namespace shardcomm
