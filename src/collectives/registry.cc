// The engines, the collectives that each can carry out, and the costs of both (alpha-beta, Hockney 1994).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <type_traits>

#include "collectives/engine.h"
#include "collectives/registry.h"

namespace shardcomm {
namespace {

double us(double bytes, double gigabytes_per_second) { return bytes / gigabytes_per_second / 1e3; }

// Until a rank has seen the signals of all others. Where ranks outnumber cores, all must have had their turn.
double meeting_us(const Topology& topology, const MachineModel& machine) {
  const int turns = (topology.world_size + topology.cores_per_node - 1) / topology.cores_per_node;
  return machine.signal_us * (topology.world_size - 1) + (turns > 1 ? machine.switch_us * turns : 0);
}

constexpr Cost kCannot{INFINITY, INFINITY};

// Of the direct all_reduce: to make, announce and read a second table of sources.
constexpr double kSecondStepUs = 0.2;

bool is_all_reduce(const Workload& workload) { return traits(workload.collective).pattern == Pattern::kReduceAll; }

// Bytes that the busiest rank reads where every source is read as a whole.
double whole_read(const Workload& workload, const Topology& topology) {
  const auto whole = static_cast<double>(workload.whole_bytes);
  return traits(workload.collective).pattern == Pattern::kReduceTo ? whole * topology.world_size : whole;
}

// The payload is copied in by its owner and out by every reader; a message cannot be longer than its slot.
Cost inline_cost(const Workload& workload, const Topology& topology, const MachineModel& machine) {
  if (workload.announced_bytes > kInlineCapacity || workload.memory == SourceKind::kMosaic) return kCannot;
  const auto announced = static_cast<double>(workload.announced_bytes);
  const double read = is_all_reduce(workload) ? announced * topology.world_size : whole_read(workload, topology);
  return {meeting_us(topology, machine), us(announced + read, machine.cached_gbs)};
}

// Two meetings (all_reduce three), addresses to resolve, and one copy.
Cost direct_cost(const Workload& workload, const Topology& topology, const MachineModel& machine) {
  if (workload.memory == SourceKind::kMosaic) return kCannot;
  const double peers = topology.world_size - 1;
  double latency = meeting_us(topology, machine) * 2 + machine.lookup_us * peers;
  const auto whole = static_cast<double>(workload.whole_bytes);
  double read = whole_read(workload, topology);
  if (is_all_reduce(workload)) {  // a step more, which gathers the shares
    latency += meeting_us(topology, machine) + machine.lookup_us * peers + kSecondStepUs;
    read += whole * peers / topology.world_size;
  }
  double gbs = whole * topology.world_size <= machine.cache_bytes ? machine.cached_gbs : machine.memory_gbs;
  if (workload.memory == SourceKind::kAttached) {
    latency += machine.attach_us * peers;
    gbs = std::min(gbs, machine.attach_gbs.value_or(gbs));
  }
  if (workload.memory == SourceKind::kStaged) gbs = std::min(gbs, machine.staged_gbs.value_or(gbs));
  return {latency, us(read, gbs)};
}

// One meeting; the bytes stay where they are.
Cost mosaic_cost(const Workload& workload, const Topology& topology, const MachineModel& machine) {
  if (workload.memory != SourceKind::kMosaic) return kCannot;
  return {meeting_us(topology, machine), 0};
}

// Most collectives are a single step of an engine: the whole operation.
Step whole_step(const Execution& execution) {
  const Operation& operation = execution.operation;
  const CollectiveTraits& has = traits(operation.call().collective);
  const Rank root = has.has_root ? root_of(operation.call()) : 0;
  return {Geometry(has.pattern, execution.fabric.size, operation.counts, root), operation.items};
}

Status whole_inline(Execution& execution) { return run_inline(execution, whole_step(execution)); }

Status whole_direct(Execution& execution) {
  if (!is_all_reduce(execution.operation.workload)) return run_direct(execution, whole_step(execution));
  return execution.operation.items.size() == 1 ? all_reduce_direct(execution) : all_reduce_many_direct(execution);
}

constexpr Engine kInline{"inline", std::nullopt, whole_inline};
constexpr Engine kDirect{"direct", TransportKind::kMapped, whole_direct};
constexpr Engine kPairs{"pairs", TransportKind::kMapped, all_to_all_v};
constexpr Engine kMosaic{"mosaic", TransportKind::kMapped, all_gather_mosaic};

// The collectives that an engine can carry out, and its cost.
struct Service {
  const Engine* engine;
  bool (*serves)(Collective collective);
  CostFunction cost;
};
constexpr Service kServices[] = {
    {&kInline, [](Collective collective) { return !traits(collective).has_own_counts(); }, inline_cost},
    {&kDirect, [](Collective c) { return traits(c).has_elements && !traits(c).has_own_counts(); }, direct_cost},
    {&kPairs, [](Collective collective) { return traits(collective).has_own_counts(); }, direct_cost},
    {&kMosaic, [](Collective collective) { return collective == Collective::kAllGather; }, mosaic_cost},
};

// The rows: each service for every collective that it serves.
struct Table {
  Table() {
    for (int i = 0; i < kCollectiveCount; ++i) {
      const auto collective = static_cast<Collective>(i);
      for (const Service& service : kServices) {
        if (service.serves(collective)) rows[count++] = {collective, service.engine, service.cost};
      }
    }
  }
  std::array<Algorithm, kCollectiveCount * std::size(kServices)> rows{};
  size_t count = 0;
};
static_assert(std::is_trivially_destructible_v<Table>, "operations may still run while a program ends");

}  // namespace

std::span<const Algorithm> algorithms() noexcept {
  static const Table table;
  return {table.rows.data(), table.count};
}

std::string name(const Algorithm& algorithm) {
  return fmt::format("{}_{}", name(algorithm.collective), algorithm.engine->name);
}

}  // namespace shardcomm
