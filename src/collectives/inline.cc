// The low-latency engine: data and signal arrive together (the idea of NCCL's LL protocol, on cache-coherent memory
// where one release store orders a whole message). A rank takes its own part from its input, never from its message:
// what it has announced lies in its peers' caches, and looking at it again would cost another way there and back.
#include <cstring>
#include <vector>

#include "collectives/engine.h"
#include "collectives/transfer_cursor.h"

namespace shardcomm {
namespace {

void copy(std::byte* to, const std::byte* from, size_t bytes) noexcept {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

Status combine(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  const auto size = static_cast<size_t>(fabric.size);
  constexpr size_t kOnStack = 64;
  const void* on_stack[kOnStack];
  std::vector<const void*> on_heap(size > kOnStack ? size : 0);
  const std::span<const void*> sources(size > kOnStack ? on_heap.data() : on_stack, size);
  const Rank me = fabric.rank;
  const Route own = step.geometry.route(me, me), announced = step.geometry.message_route(me, me);
  size_t position = 0;  // of an item in every message; ragged forms, whose messages differ in length, have one item
  for (const Item& item : step.items) {
    for (Rank source = 0; source < fabric.size; ++source) {
      const void*& from = sources[static_cast<size_t>(source)];
      if (source == me) {
        from = item.in + own.source_offset_bytes(item);
      } else {
        const size_t omitted = me > source ? step.geometry.omitted_length(source) : 0;
        const size_t offset_bytes = (own.source_offset - omitted) * own.unit_bytes(item);
        from = fabric.control->payload_of(source).data() + position + offset_bytes;
      }
    }
    const ReduceRun whole{.item = item, .offset_bytes = 0, .bytes = own.bytes(item), .sources = sources};
    SHARDCOMM_TRY(reduce_run(execution, whole));
    position += align_item(announced.source_bytes(item));
  }
  return {};
}

void copy_own_part(const Step& step, Rank me) noexcept {
  const Route route = step.geometry.route(me, me);
  for (const Item& item : step.items) {
    const std::byte* const from = item.in + route.source_offset_bytes(item);
    std::byte* const target = route.target(item);
    if (target != from) copy(target, from, route.bytes(item));
  }
}

void copy_from_message(const Fabric& fabric, const Step& step, Rank source) noexcept {
  const Route route = step.geometry.message_route(source, fabric.rank);
  const std::byte* message = fabric.control->payload_of(source).data();
  for (const Item& item : step.items) {
    copy(route.target(item), message + route.source_offset_bytes(item), route.bytes(item));
    message += align_item(route.source_bytes(item));
  }
}

// Gives the bytes of the message.
size_t write_message(Fabric& fabric, const Step& step) noexcept {
  std::byte* const begin = fabric.control->payload().data();
  std::byte* to = begin;
  const Route own = step.geometry.route(fabric.rank, fabric.rank);
  const size_t omitted = step.geometry.omitted_length(fabric.rank);
  for (const Item& item : step.items) {
    const size_t before = own.source_offset_bytes(item), skipped = before + omitted * own.unit_bytes(item);
    const size_t after = own.source_bytes(item) - skipped;
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
  announce(execution, step.phase, geometry.is_read(fabric.rank) ? write_message(fabric, step) : 0);
  SHARDCOMM_TRY(fabric.control->collect(execution.limit));
  count_traffic(execution, step);
  if (geometry.reduces()) return combine(execution, step);
  for (Rank source = 0; source < fabric.size; ++source) {
    if (!geometry.reads(source, fabric.rank)) continue;
    if (source == fabric.rank) {
      copy_own_part(step, source);
    } else {
      copy_from_message(fabric, step, source);
    }
  }
  return {};
}

}  // namespace shardcomm
