// What the engines share.
#include "collectives/engine.h"

#include "kernels/kernels.h"

namespace shardcomm {
namespace {

uint64_t bytes_between(const Step& step, Rank source, Rank reader) noexcept {
  const Route route = step.geometry.route(source, reader);
  const auto [first, end] = step.geometry.items(source, reader, step.items.size());
  uint64_t bytes = 0;
  for (size_t i = first; i < end; ++i) bytes += route.bytes(step.items[i]);
  return bytes;
}

}  // namespace

void announce(Execution& execution, uint8_t phase, size_t payload_bytes) noexcept {
  const Operation& operation = execution.operation;
  execution.fabric.control->announce({.signature = operation.signature,
                                      .phase = phase,
                                      .payload_bytes = payload_bytes,
                                      .epoch = operation.epoch,
                                      .label = operation.label});
}

Status await_readers(Execution& execution, const Geometry& geometry) {
  const Fabric& fabric = execution.fabric;
  for (int step = 1; step < fabric.size; ++step) {
    const Rank peer = (fabric.rank + step) % fabric.size;
    if (geometry.reads(fabric.rank, peer)) SHARDCOMM_TRY(fabric.control->await_reader(peer, execution.limit));
  }
  return {};
}

Status reduce_run(const Execution& execution, const ReduceRun& run) {
  const Item& item = run.item;
  return kernels::launch(kernels::ReduceLaunch{.target = item.out + run.offset_bytes,
                                               .sources = run.sources,
                                               .count = run.bytes / size_of(item.dtype),
                                               .dtype = item.dtype,
                                               .op = item.op,
                                               .scale = item.scale,
                                               .traffic_bytes = execution.node_bytes},
                         execution.stream);
}

void count_traffic(Execution& execution, const Step& step) noexcept {
  const Geometry& geometry = step.geometry;
  const Rank me = execution.fabric.rank;
  const auto peers = static_cast<uint64_t>(execution.fabric.size - 1);
  TrafficCounters& traffic = execution.traffic;
  if (geometry.is_even()) {
    const uint64_t bytes = peers * execution.operation.item_bytes;
    traffic.bytes_sent += bytes;
    traffic.bytes_received += bytes;
    return;
  }
  for (Rank peer = 0; peer < execution.fabric.size; ++peer) {
    if (peer == me) continue;
    traffic.bytes_sent += bytes_between(step, me, peer);
    traffic.bytes_received += bytes_between(step, peer, me);
  }
}

}  // namespace shardcomm
