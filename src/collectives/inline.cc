// The low-latency engine: data and signal arrive together (the idea of NCCL's LL protocol, on cache-coherent memory
// where one release store orders a whole message). A rank takes its own part from its input, never from its message:
// what it has announced lies in its peers' caches, and looking at it again would cost another way there and back.
#include <vector>

#include "collectives/engine.h"
#include "collectives/inline_message.h"
#include "collectives/transfer_cursor.h"

namespace shardcomm {
namespace {

Status combine(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  const Rank me = fabric.rank;
  if (!step.geometry.reads(me, me)) return {};  // of a rooted reduction, not the root
  const auto size = static_cast<size_t>(fabric.size);
  constexpr size_t kOnStack = 64;
  const void* on_stack[kOnStack];
  std::vector<const void*> on_heap(size > kOnStack ? size : 0);
  const std::span<const void*> sources(size > kOnStack ? on_heap.data() : on_stack, size);
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

}  // namespace

Status run_inline(Execution& execution, const Step& step) {
  Control& control = *execution.fabric.control;
  const Geometry& geometry = step.geometry;
  const Rank me = execution.fabric.rank;
  announce(execution, step.phase, geometry.is_read(me) ? write_message(step, me, control.payload().data()) : 0);
  SHARDCOMM_TRY(control.collect(execution.limit));
  count_traffic(execution, step);
  if (geometry.reduces()) return combine(execution, step);
  for (Rank source = 0; source < execution.fabric.size; ++source) {
    if (!geometry.reads(source, me)) continue;
    if (source == me) {
      copy_own_part(step, me);
    } else {
      copy_from_message(step, source, me, control.payload_of(source).data());
    }
  }
  return {};
}

}  // namespace shardcomm
