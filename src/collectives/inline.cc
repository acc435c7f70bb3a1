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
  size_t position = 0;
  for (const Item& item : step.items) {
    const Transfer transfer = step.geometry.transfer(item, fabric.rank(), fabric.rank());
    for (size_t r = 0; r < size; ++r) {
      const auto source = static_cast<Rank>(r);
      const std::byte* in = source == fabric.rank() ? item.in : fabric.payload_of(source).data() + position;
      sources[r] = in + transfer.offset_bytes;
    }
    SHARDCOMM_TRY(reduce_run(execution, item, 0, transfer.bytes, sources));
    position += align_item(step.geometry.in_bytes(item, fabric.rank()));
  }
  return {};
}

Status copy_out(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  const Rank me = fabric.rank();
  for (Rank source = 0; source < fabric.size(); ++source) {
    if (!step.geometry.reads_from(source)) continue;
    const std::byte* payload = source == me ? nullptr : fabric.payload_of(source).data();
    size_t position = 0;
    for (const Item& item : step.items) {
      const Transfer transfer = step.geometry.transfer(item, source, me);
      const std::byte* from = (source == me ? item.in : payload + position) + transfer.offset_bytes;
      std::byte* target = step.geometry.target(item, source);
      if (target != from && transfer.bytes != 0) std::memcpy(target, from, transfer.bytes);
      position += align_item(step.geometry.in_bytes(item, source));
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
    for (const Item& item : step.items) {
      const size_t bytes = step.geometry.in_bytes(item, fabric.rank());
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
