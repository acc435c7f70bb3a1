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

Status combine(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  const auto size = static_cast<size_t>(fabric.size());
  constexpr size_t kOnStack = 64;
  const void* on_stack[kOnStack];
  std::vector<const void*> on_heap(size > kOnStack ? size : 0);
  const std::span<const void*> sources(size > kOnStack ? on_heap.data() : on_stack, size);
  const Rank me = fabric.rank();
  const Route own = step.geometry.route(me, me), announced = step.geometry.message_route(me, me);
  size_t position = 0;  // of an item in every message; ragged forms, whose messages differ in length, have one item
  for (const Item& item : step.items) {
    for (Rank source = 0; source < fabric.size(); ++source) {
      const size_t before = me > source ? step.geometry.left_out(source) : 0;  // of the source's own part
      sources[static_cast<size_t>(source)] =
          source == me ? item.in + own.offset_bytes(item)
                       : fabric.payload_of(source).data() + position + (own.offset - before) * own.unit_bytes(item);
    }
    SHARDCOMM_TRY(reduce_run(execution, item, 0, own.bytes(item), sources));
    position += align_item(announced.in_bytes(item));
  }
  return {};
}

void copy_own_part(const Step& step, Rank me) noexcept {
  const Route route = step.geometry.route(me, me);
  for (const Item& item : step.items) {
    const std::byte* const from = item.in + route.offset_bytes(item);
    std::byte* const target = route.place(item);
    if (target != from) copy(target, from, route.bytes(item));
  }
}

void copy_from_message(const Fabric& fabric, const Step& step, Rank source) noexcept {
  const Route route = step.geometry.message_route(source, fabric.rank());
  const std::byte* message = fabric.payload_of(source).data();
  for (const Item& item : step.items) {
    copy(route.place(item), message + route.offset_bytes(item), route.bytes(item));
    message += align_item(route.in_bytes(item));
  }
}

// Gives the bytes of the message.
size_t write_message(Fabric& fabric, const Step& step) noexcept {
  std::byte* const begin = fabric.payload().data();
  std::byte* to = begin;
  const Route own = step.geometry.route(fabric.rank(), fabric.rank());
  const size_t left_out = step.geometry.left_out(fabric.rank());
  for (const Item& item : step.items) {
    const size_t before = own.offset_bytes(item), skipped = before + left_out * own.unit_bytes(item);
    const size_t after = own.in_bytes(item) - skipped;
    copy(to, item.in, before);
    copy(to + before, item.in + skipped, after);
    to += align_item(before + after);
  }
  return static_cast<size_t>(to - begin);
}

}  // namespace

Status run_inline(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  const Geometry& geometry = step.geometry;
  announce(execution, step.phase, geometry.reads_from(fabric.rank()) ? write_message(fabric, step) : 0);
  SHARDCOMM_TRY(fabric.collect(execution.limit));
  count_traffic(execution, step);
  if (geometry.reduces()) return combine(execution, step);
  for (Rank source = 0; source < fabric.size(); ++source) {
    if (!geometry.reads_from(source)) continue;
    if (source == fabric.rank()) {
      copy_own_part(step, source);
    } else {
      copy_from_message(fabric, step, source);
    }
  }
  return {};
}

}  // namespace shardcomm
