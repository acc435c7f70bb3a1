#include "tools/bench/bind.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>

namespace shardcomm::tools {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};

std::vector<int> usable_units() {
  std::vector<int> units;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return units;
  for (int unit = 0; unit < CPU_SETSIZE; ++unit) {
    if (CPU_ISSET(unit, &set)) units.push_back(unit);
  }
  return units;
}

// The core of a hardware thread, by hwloc's numbers; every thread is its own where hwloc does not know.
int core_of(hwloc_topology_t topology, int unit) {
  hwloc_obj_t object = hwloc_get_pu_obj_by_os_index(topology, static_cast<unsigned>(unit));
  while (object != nullptr && object->type != HWLOC_OBJ_CORE) object = object->parent;
  return object == nullptr ? -1 - unit : static_cast<int>(object->logical_index);
}

// One of each core first, then the second of each, and so on.
Result<std::vector<int>> units_in_order() {
  std::vector<int> units = usable_units();
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Status::native(Origin::kErrno, errno, "hwloc_topology_init");
  const std::unique_ptr<hwloc_topology, DestroyTopology> topology(raw);
  if (hwloc_topology_load(raw) != 0) return Status::native(Origin::kErrno, errno, "hwloc_topology_load");
  std::vector<int> order;
  while (!units.empty()) {
    std::set<int> taken;
    std::vector<int> left;
    for (const int unit : units) (taken.insert(core_of(raw, unit)).second ? order : left).push_back(unit);
    units = left;
  }
  return order;
}

std::string list_of(const cpu_set_t& set) {
  std::string text;
  for (int unit = 0; unit < CPU_SETSIZE; ++unit) {
    if (!CPU_ISSET(unit, &set)) continue;
    const int first = unit;
    while (unit + 1 < CPU_SETSIZE && CPU_ISSET(unit + 1, &set)) ++unit;
    text += fmt::format("{}{}", text.empty() ? "" : ",", first);
    if (unit > first) text += fmt::format("-{}", unit);
  }
  return text;
}

}  // namespace

Status bind_to_core(int place) {
  SHARDCOMM_TRY_ASSIGN(const std::vector<int> units, units_in_order());
  if (units.empty()) return Status(Code::kUnavailable, "the kernel does not say which cores this process may run on");
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(units[static_cast<size_t>(place) % units.size()], &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) return Status::native(Origin::kErrno, errno, "sched_setaffinity");
  return {};
}

std::vector<std::string> Places::to_text() const {
  std::vector<std::string> text;
  for (const cpu_set_t& set : of_ranks) text.push_back(list_of(set));
  return text;
}

Result<Places> find_places(Communicator& comm) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) return Status::native(Origin::kErrno, errno, "sched_getaffinity");
  Places places;
  places.of_ranks.resize(static_cast<size_t>(comm.size()));
  SHARDCOMM_TRY(
      comm.all_gather({.shard = &mine, .full = places.of_ranks.data(), .count = sizeof mine, .dtype = DType::kU8},
                      StreamRef::caller())
          .status());
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const cpu_set_t& set : places.of_ranks) CPU_OR(&all, &all, &set);
  places.usable = CPU_COUNT(&all);
  return places;
}

}  // namespace shardcomm::tools
