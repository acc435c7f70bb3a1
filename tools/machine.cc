#include "tools/machine.h"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "tools/launcher.h"

namespace shardcomm::tools {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

void add_caches(hwloc_topology_t topology, hwloc_obj_type_t type, int level, std::vector<Cache>& caches) {
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr;) {
    const size_t size_bytes = object->attr->cache.size;
    const auto same = std::find_if(caches.begin(), caches.end(),
                                   [&](const Cache& c) { return c.level == level && c.size_bytes == size_bytes; });
    if (same != caches.end())
      ++same->count;
    else
      caches.push_back({level, size_bytes, 1});
  }
}

}  // namespace

Result<Machine> look_at_machine() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Status::native(Origin::kErrno, errno, "hwloc_topology_init");
  const Topology topology(raw);
  if (hwloc_topology_load(raw) != 0) return Status::native(Origin::kErrno, errno, "hwloc_topology_load");
  Machine machine;
  machine.cores = hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_CORE);
  machine.units = hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_PU);
  machine.usable_units = usable_cores();
  machine.numa_nodes = hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_NUMANODE);
  machine.memory_bytes = hwloc_get_root_obj(raw)->total_memory;
  hwloc_obj_t package = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_PACKAGE, nullptr);
  for (hwloc_obj_t object : {package, hwloc_get_root_obj(raw)}) {
    const char* model = object == nullptr ? nullptr : hwloc_obj_get_info_by_name(object, "CPUModel");
    if (machine.processor.empty() && model != nullptr) machine.processor = model;
  }
  add_caches(raw, HWLOC_OBJ_L1CACHE, 1, machine.caches);
  add_caches(raw, HWLOC_OBJ_L2CACHE, 2, machine.caches);
  add_caches(raw, HWLOC_OBJ_L3CACHE, 3, machine.caches);
  add_caches(raw, HWLOC_OBJ_L4CACHE, 4, machine.caches);
  return machine;
}

}  // namespace shardcomm::tools
