#include "core/locality.h"

#include <hwloc.h>
#include <hwloc/glibc-sched.h>
#include <sched.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/pod.h"

namespace shardcomm {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Machine = std::unique_ptr<hwloc_topology, DestroyTopology>;

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Cores = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

// Null where hwloc does not know. All cores are in it, since peers may run on some that this process may not use;
// caches and memories are found without leaving the core that the caller is bound to.
Machine look_at_machine() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Machine machine(raw);
  // Groups stand for the cores around a NUMA node; without them a node would seem to be around all cores.
  const bool ready = hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE) == 0 &&
                     hwloc_topology_set_type_filter(raw, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE) == 0 &&
                     hwloc_topology_set_type_filter(raw, HWLOC_OBJ_L3CACHE, HWLOC_TYPE_FILTER_KEEP_ALL) == 0 &&
                     hwloc_topology_set_flags(
                         raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING) == 0 &&
                     hwloc_topology_load(raw) == 0;
  return ready ? std::move(machine) : nullptr;
}

// The smallest object of this type around all of `cores`: a memory of all cores may lie beside those of some.
hwloc_obj_t place_of(hwloc_topology_t machine, hwloc_obj_type_t type, hwloc_const_bitmap_t cores) {
  hwloc_obj_t smallest = nullptr;
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(machine, type, object)) != nullptr;) {
    if (hwloc_bitmap_isincluded(cores, object->cpuset) == 0) continue;
    const bool smaller =
        smallest == nullptr || hwloc_bitmap_weight(object->cpuset) < hwloc_bitmap_weight(smallest->cpuset);
    if (smaller) smallest = object;
  }
  return smallest;
}

// By rank; nothing where they do not tell ranks apart.
std::optional<std::vector<int>> places_of(hwloc_topology_t machine, hwloc_obj_type_t type,
                                          std::span<const Cores> cores_by_rank) {
  std::vector<int> places;
  for (const Cores& cores : cores_by_rank) {
    const hwloc_obj_t place = place_of(machine, type, cores.get());
    if (place == nullptr) return std::nullopt;
    places.push_back(static_cast<int>(place->logical_index));
  }
  const size_t distinct = std::set<int>(places.begin(), places.end()).size();
  if (distinct == 1 || distinct == places.size()) return std::nullopt;
  return places;
}

}  // namespace

std::string usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {};
  return std::string(as_bytes(set));
}

int count_cores(std::span<const std::string> cores_by_rank) {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const std::string& bytes : cores_by_rank) {
    const std::optional<cpu_set_t> one = from_bytes<cpu_set_t>(bytes);
    if (one) CPU_OR(&all, &all, &*one);
  }
  return std::max(1, CPU_COUNT(&all));
}

std::vector<int> domains_of(std::span<const std::string> cores_by_rank) {
  const std::vector<int> one_domain(cores_by_rank.size(), 0);
  const auto differ = std::adjacent_find(cores_by_rank.begin(), cores_by_rank.end(), std::not_equal_to<>());
  if (cores_by_rank.size() <= 2 || differ == cores_by_rank.end()) return one_domain;

  const Machine machine = look_at_machine();
  if (machine == nullptr) return one_domain;
  std::vector<Cores> cores;
  for (const std::string& bytes : cores_by_rank) {
    const std::optional<cpu_set_t> set = from_bytes<cpu_set_t>(bytes);
    if (!set || CPU_COUNT(&*set) == 0) return one_domain;
    cores.emplace_back(hwloc_bitmap_alloc());
    if (hwloc_cpuset_from_glibc_sched_affinity(machine.get(), cores.back().get(), &*set, sizeof *set) != 0) {
      return one_domain;
    }
  }
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_NUMANODE}) {
    if (const auto places = places_of(machine.get(), type, cores)) return *places;
  }
  return one_domain;
}

}  // namespace shardcomm
