// The low-latency engine: data and signal arrive together (the idea of NCCL's LL protocol, on cache-coherent memory
// where one release store orders a whole message). A rank takes its own part from its input, never from its message:
// what it has announced lies in its peers' caches, and looking at it again would cost another way there and back.
#include <cstring>
#include <vector>

#include "collectives/engine.h"
#include "kernels/kernels.h"

namespace shardcomm {
namespace {

Status combine(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  const auto size = static_cast<size_t>(fabric.size());
  constexpr size_t kOnStack = 64;
  const void* on_stack[kOnStack];
  std::vector<const void*> on_heap(size > kOnStack ? size : 0);
  const std::span<const void*> sources(size > kOnStack ? on_heap.data() : on_stack, size);
  const Route route = step.geometry.route(fabric.rank(), fabric.rank());  // the same from every source
  size_t position = 0;
  for (const Item& item : step.items) {
    for (size_t r = 0; r < size; ++r) {
      const auto source = static_cast<Rank>(r);
      const std::byte* in = source == fabric.rank() ? item.in : fabric.payload_of(source).data() + position;
      sources[r] = in + route.offset_bytes(item);
    }
    SHARDCOMM_TRY(reduce_run(execution, item, 0, route.bytes(item), sources));
    position += align_item(route.in_bytes(item));
  }
  return {};
}

Status copy_out(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  const Rank me = fabric.rank();
  for (Rank source = 0; source < fabric.size(); ++source) {
    if (!step.geometry.reads_from(source)) continue;
    const std::byte* payload = source == me ? nullptr : fabric.payload_of(source).data();
    const Route route = step.geometry.route(source, me);
    size_t position = 0;
    for (const Item& item : step.items) {
      const std::byte* from = (source == me ? item.in : payload + position) + route.offset_bytes(item);
      std::byte* target = route.place(item);
      const size_t bytes = route.bytes(item);
      if (target != from && bytes != 0) std::memcpy(target, from, bytes);
      position += align_item(route.in_bytes(item));
    }
  }
  return {};
}

}  // namespace

Status run_inline(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  size_t position = 0;
  if (step.geometry.reads_from(fabric.rank())) {
    std::byte* payload = fabric.payload().data();
    const Route route = step.geometry.route(fabric.rank(), fabric.rank());
    for (const Item& item : step.items) {
      const size_t bytes = route.in_bytes(item);
      if (bytes != 0) std::memcpy(payload + position, item.in, bytes);
      position += align_item(bytes);
    }
  }
  announce(execution, step.phase, position);
  SHARDCOMM_TRY(fabric.collect(execution.limit));
  count_traffic(execution, step);
  return step.geometry.reduces() ? combine(execution, step) : copy_out(execution, step);
}

}  // namespace shardcomm
