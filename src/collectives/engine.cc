// What the engines share.
#include "collectives/engine.h"

#include "kernels/kernels.h"

namespace shardcomm {

void announce(Execution& execution, uint8_t phase, size_t payload_bytes) noexcept {
  const Operation& operation = execution.operation;
  execution.fabric.announce(operation.signature, phase, payload_bytes, {operation.epoch, operation.label});
}

Status reduce_run(const Execution& execution, const Item& item, size_t offset_bytes, size_t bytes,
                  std::span<const void* const> sources) {
  return kernels::launch(kernels::ReduceLaunch{item.out + offset_bytes, sources, bytes / size_of(item.dtype),
                                               item.dtype, item.op, execution.footprint_bytes},
                         StreamRef::caller());
}

void count_traffic(Execution& execution, const Step& step) noexcept {
  const Geometry& geometry = step.geometry;
  const Rank me = execution.fabric.rank();
  const auto peers = static_cast<uint64_t>(execution.fabric.size() - 1);
  TrafficCounters& traffic = execution.traffic;
  if (geometry.is_even()) {
    const uint64_t bytes = peers * execution.operation.item_bytes;
    traffic.bytes_sent += bytes;
    traffic.bytes_received += bytes;
    return;
  }
  for (Rank peer = 0; peer < execution.fabric.size(); ++peer) {
    if (peer == me) continue;
    const Route sent = geometry.route(me, peer), received = geometry.route(peer, me);
    for (const Item& item : step.items) {
      traffic.bytes_sent += sent.bytes(item);
      traffic.bytes_received += received.bytes(item);
    }
  }
}

}  // namespace shardcomm
