// The table of algorithms, their costs, and the choice among them.
#include <cmath>

#include "collectives/algorithms.h"
#include "collectives/engine.h"

namespace shardcomm {
namespace {

// A typical two-core x86 server, until the machine's own figures are measured: one cache line's way between cores,
// copy bandwidth of one core out of cache and out of memory, a system call.
constexpr double kSignalUs = 0.15;
constexpr double kCachedGbs = 12.0;
constexpr double kMemoryGbs = 8.0;
constexpr double kSystemCallUs = 0.5;

double us(double bytes, double gigabytes_per_second) { return bytes / gigabytes_per_second / 1e3; }

// The payload is copied in by its owner and out by every reader; a message cannot be longer than its slot.
Cost inline_cost(const Workload& workload, const Topology& topology) {
  if (workload.announced_bytes > kInlineCapacity) return {INFINITY, INFINITY};
  const auto peers = static_cast<double>(topology.world_size - 1);
  const auto announced = static_cast<double>(workload.announced_bytes);
  const bool all_reduce = workload.collective == Collective::kAllReduce;
  const double read = all_reduce ? announced * peers : static_cast<double>(workload.whole_bytes);
  return {kSignalUs * peers, us(announced + read, kCachedGbs)};
}

// Two signals, addresses to resolve, and one copy.
Cost direct_cost(const Workload& workload, const Topology& topology) {
  const auto peers = static_cast<double>(topology.world_size - 1);
  const bool all_reduce = workload.collective == Collective::kAllReduce;
  const double signals = all_reduce ? 3 : 2;
  double latency = kSignalUs * signals * peers + 0.05 * peers;
  double bytes = static_cast<double>(workload.whole_bytes);
  if (workload.memory == SourceKind::kAttached) latency += kSystemCallUs * peers;
  if (workload.memory == SourceKind::kStaged) bytes *= 2;
  return {latency, us(bytes, kMemoryGbs)};
}

constexpr TransportKind kMapped = TransportKind::kMapped;

constexpr Algorithm kAlgorithms[] = {
    {"all_gather_inline", Collective::kAllGather, kMapped, inline_cost, all_gather_inline},
    {"all_gather_direct", Collective::kAllGather, kMapped, direct_cost, all_gather_direct},
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

// The rows of one collective stand together, at most kMaxRows of them.
constexpr size_t kMaxRows = 4;
struct Rows {
  size_t first = 0, count = 0;
  Candidate candidates[kMaxRows];
};

Rows rows_of(Collective collective) noexcept {
  Rows rows;
  for (size_t i = 0; i < std::size(kAlgorithms); ++i) {
    if (kAlgorithms[i].collective != collective) continue;
    if (rows.count == 0) rows.first = i;
    rows.candidates[rows.count++] = {kAlgorithms[i].name, kAlgorithms[i].cost};
  }
  return rows;
}

}  // namespace

std::span<const Algorithm> algorithms() noexcept { return kAlgorithms; }

Workload workload_of(const Operation& operation, int size, SourceKind memory) noexcept {
  Workload workload{operation.collective, 0, 0, memory};
  const auto n = static_cast<size_t>(size);
  for (const Item& item : operation.items) {
    const size_t element = size_of(item.dtype);
    size_t whole = item.count * element;
    size_t announced = whole;
    switch (operation.collective) {
      case Collective::kAllGather:
      case Collective::kAllGatherMany: whole *= n; break;
      case Collective::kReduceScatter:
      case Collective::kReduceScatterMany:
      case Collective::kAllToAll:
        whole *= n;
        announced = whole;
        break;
      case Collective::kAllGatherV:
      case Collective::kReduceScatterV: {
        size_t sum = 0, largest = 0;
        for (const size_t count : operation.counts) {
          sum += count;
          largest = std::max(largest, count);
        }
        whole = sum * element;
        announced = operation.collective == Collective::kAllGatherV ? largest * element : whole;
        break;
      }
      default: break;
    }
    workload.whole_bytes += align_item(whole);
    workload.announced_bytes += align_item(announced);
  }
  return workload;
}

const Algorithm& select(const Workload& workload, const Topology& topology) noexcept {
  const Rows rows = rows_of(workload.collective);
  return kAlgorithms[rows.first + choose(workload, topology, {rows.candidates, rows.count})];
}

CollectivePlan explain(const Workload& workload, const Topology& topology, std::string_view transport) {
  const Rows rows = rows_of(workload.collective);
  CollectivePlan plan = explain_choice(workload, topology, {rows.candidates, rows.count}, transport);
  plan.source = plan.algorithm.ends_with("_inline") ? SourceKind::kInline : workload.memory;
  return plan;
}

}  // namespace shardcomm
