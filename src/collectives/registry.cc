// The table of algorithms and their costs (alpha-beta, Hockney 1994).
#include <algorithm>
#include <cmath>

#include "collectives/algorithms.h"
#include "collectives/engine.h"

namespace shardcomm {
namespace {

double us(double bytes, double gigabytes_per_second) { return bytes / gigabytes_per_second / 1e3; }

// Until a rank has seen the signals of all others. Where ranks outnumber cores, all must have had their turn.
double meeting_us(const Topology& topology, const MachineModel& machine) {
  const int turns = (topology.world_size + topology.cores_per_node - 1) / topology.cores_per_node;
  return machine.signal_us * (topology.world_size - 1) + (turns > 1 ? machine.switch_us * turns : 0);
}

constexpr Cost kCannot{INFINITY, INFINITY};

// The payload is copied in by its owner and out by every reader; a message cannot be longer than its slot.
Cost inline_cost(const Workload& workload, const Topology& topology, const MachineModel& machine) {
  if (workload.announced_bytes > kInlineCapacity || workload.memory == SourceKind::kMosaic) return kCannot;
  const auto announced = static_cast<double>(workload.announced_bytes);
  const bool all_reduce = workload.collective == Collective::kAllReduce;
  const double read = all_reduce ? announced * topology.world_size : static_cast<double>(workload.whole_bytes);
  return {meeting_us(topology, machine), us(announced + read, machine.cached_gbs)};
}

// Two meetings (all_reduce three), addresses to resolve, and one copy.
Cost direct_cost(const Workload& workload, const Topology& topology, const MachineModel& machine) {
  if (workload.memory == SourceKind::kMosaic) return kCannot;
  const double peers = topology.world_size - 1;
  const bool all_reduce = workload.collective == Collective::kAllReduce;
  double latency = meeting_us(topology, machine) * (all_reduce ? 3 : 2) + machine.lookup_us * peers;
  const auto whole = static_cast<double>(workload.whole_bytes);
  double gbs = whole * topology.world_size <= machine.cache_bytes ? machine.cached_gbs : machine.memory_gbs;
  if (workload.memory == SourceKind::kAttached) {
    latency += machine.attach_us * peers;
    gbs = std::min(gbs, machine.attach_gbs.value_or(gbs));
  }
  if (workload.memory == SourceKind::kStaged) gbs = std::min(gbs, machine.staged_gbs.value_or(gbs));
  return {latency, us(whole, gbs)};
}

// One meeting; the bytes stay where they are.
Cost mosaic_cost(const Workload& workload, const Topology& topology, const MachineModel& machine) {
  if (workload.memory != SourceKind::kMosaic) return kCannot;
  return {meeting_us(topology, machine), 0};
}

constexpr TransportKind kMapped = TransportKind::kMapped;

constexpr Algorithm kAlgorithms[] = {
    {"all_gather_inline", Collective::kAllGather, kMapped, inline_cost, all_gather_inline},
    {"all_gather_direct", Collective::kAllGather, kMapped, direct_cost, all_gather_direct},
    {"all_gather_mosaic", Collective::kAllGather, kMapped, mosaic_cost, all_gather_mosaic},
    {"reduce_scatter_inline", Collective::kReduceScatter, kMapped, inline_cost, reduce_scatter_inline},
    {"reduce_scatter_direct", Collective::kReduceScatter, kMapped, direct_cost, reduce_scatter_direct},
    {"all_reduce_inline", Collective::kAllReduce, kMapped, inline_cost, all_reduce_inline},
    {"all_reduce_direct", Collective::kAllReduce, kMapped, direct_cost, all_reduce_direct},
    {"broadcast_inline", Collective::kBroadcast, kMapped, inline_cost, broadcast_inline},
    {"broadcast_direct", Collective::kBroadcast, kMapped, direct_cost, broadcast_direct},
    {"all_to_all_inline", Collective::kAllToAll, kMapped, inline_cost, all_to_all_inline},
    {"all_to_all_direct", Collective::kAllToAll, kMapped, direct_cost, all_to_all_direct},
    {"barrier_inline", Collective::kBarrier, kMapped, inline_cost, barrier_inline},
    {"all_gather_v_inline", Collective::kAllGatherV, kMapped, inline_cost, all_gather_inline},
    {"all_gather_v_direct", Collective::kAllGatherV, kMapped, direct_cost, all_gather_direct},
    {"reduce_scatter_v_inline", Collective::kReduceScatterV, kMapped, inline_cost, reduce_scatter_inline},
    {"reduce_scatter_v_direct", Collective::kReduceScatterV, kMapped, direct_cost, reduce_scatter_direct},
    {"all_gather_many_inline", Collective::kAllGatherMany, kMapped, inline_cost, all_gather_inline},
    {"all_gather_many_direct", Collective::kAllGatherMany, kMapped, direct_cost, all_gather_direct},
    {"reduce_scatter_many_inline", Collective::kReduceScatterMany, kMapped, inline_cost, reduce_scatter_inline},
    {"reduce_scatter_many_direct", Collective::kReduceScatterMany, kMapped, direct_cost, reduce_scatter_direct},
};

}  // namespace

std::span<const Algorithm> algorithms() noexcept { return kAlgorithms; }

}  // namespace shardcomm
