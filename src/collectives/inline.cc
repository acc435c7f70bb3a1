// The low-latency engine: data and signal arrive together (the idea of NCCL's LL protocol, on cache-coherent memory
// where one release store orders a whole message). A rank takes its own part from its input, never from its message:
// what it has announced lies in its peers' caches, and looking at it again would cost another way there and back.
#include <cstring>
#include <vector>

#include "collectives/engine.h"
#include "kernels/kernels.h"

namespace shardcomm {
namespace {

void copy(std::byte* to, const std::byte* from, size_t bytes) noexcept {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

// What a message holds of an item of its owner's.
void put_in(std::byte* to, const Item& item, const Route& own) noexcept {
  const size_t bytes = own.announced_bytes(item);
  if (own.announced == own.in) return copy(to, item.in, bytes);
  const size_t before = own.offset_bytes(item), left_out = own.bytes(item);
  copy(to, item.in, before);
  copy(to + before, item.in + before + left_out, bytes - before);
}

Status combine(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  const auto size = static_cast<size_t>(fabric.size());
  constexpr size_t kOnStack = 64;
  const void* on_stack[kOnStack];
  std::vector<const void*> on_heap(size > kOnStack ? size : 0);
  const std::span<const void*> sources(size > kOnStack ? on_heap.data() : on_stack, size);
  const Rank me = fabric.rank();
  const Route own = step.geometry.route(me, me);
  size_t position = 0;  // in every message: of ragged forms, where they differ, there is one item
  for (const Item& item : step.items) {
    for (Rank source = 0; source < fabric.size(); ++source) {
      sources[static_cast<size_t>(source)] = source == me ? item.in + own.offset_bytes(item)
                                                          : fabric.payload_of(source).data() + position +
                                                                step.geometry.route(source, me).position_bytes(item);
    }
    SHARDCOMM_TRY(reduce_run(execution, item, 0, own.bytes(item), sources));
    position += align_item(own.announced_bytes(item));
  }
  return {};
}

void copy_out(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  const Rank me = fabric.rank();
  for (Rank source = 0; source < fabric.size(); ++source) {
    if (!step.geometry.reads_from(source)) continue;
    const std::byte* payload = source == me ? nullptr : fabric.payload_of(source).data();
    const Route route = step.geometry.route(source, me);
    size_t position = 0;
    for (const Item& item : step.items) {
      const std::byte* const from =
          source == me ? item.in + route.offset_bytes(item) : payload + position + route.position_bytes(item);
      std::byte* const target = route.place(item);
      if (target != from) copy(target, from, route.bytes(item));
      position += align_item(route.announced_bytes(item));
    }
  }
}

}  // namespace

Status run_inline(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  size_t position = 0;
  if (step.geometry.reads_from(fabric.rank())) {
    std::byte* const payload = fabric.payload().data();
    const Route own = step.geometry.route(fabric.rank(), fabric.rank());
    for (const Item& item : step.items) {
      put_in(payload + position, item, own);
      position += align_item(own.announced_bytes(item));
    }
  }
  announce(execution, step.phase, position);
  SHARDCOMM_TRY(fabric.collect(execution.limit));
  count_traffic(execution, step);
  if (step.geometry.reduces()) return combine(execution, step);
  copy_out(execution, step);
  return {};
}

}  // namespace shardcomm
