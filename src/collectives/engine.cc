// The signature that ranks compare, and what the engines share.
#include "collectives/engine.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>

#include "kernels/kernels.h"

namespace shardcomm {
namespace {

// Of every item's count, dtype and op, in pieces that fit the stack.
uint64_t hash_items(std::span<const Item> items) noexcept {
  std::array<uint64_t, 64> words;
  uint64_t hash = 0;
  while (!items.empty()) {
    const size_t count = std::min(items.size(), words.size());
    for (size_t i = 0; i < count; ++i) {
      words[i] = items[i].count << 16 | static_cast<uint64_t>(items[i].dtype) << 8 | static_cast<uint64_t>(items[i].op);
    }
    hash = XXH3_64bits_withSeed(words.data(), count * sizeof(uint64_t), hash);
    items = items.subspan(count);
  }
  return hash;
}

}  // namespace

void sign(Operation& operation) noexcept {
  Signature& signature = operation.signature = {};
  signature.collective = static_cast<uint8_t>(operation.collective);
  signature.root = operation.root;
  if (!operation.items.empty()) {
    const Item& first = operation.items.front();
    signature.dtype = static_cast<uint8_t>(first.dtype);
    signature.op = static_cast<uint8_t>(first.op);
    for (const Item& item : operation.items) signature.count += item.count;
  }
  const bool many =
      operation.collective == Collective::kAllGatherMany || operation.collective == Collective::kReduceScatterMany;
  if (many) {
    signature.root = static_cast<int32_t>(operation.items.size());
    signature.detail = hash_items(operation.items);
  }
  if (!operation.counts.empty()) {
    for (const size_t count : operation.counts) signature.count += count;
    signature.detail = XXH3_64bits(operation.counts.data(), operation.counts.size_bytes());
  }
  if (!operation.label.empty()) {
    signature.detail ^= XXH3_64bits(operation.label.data(), operation.label.size());
  }
}

void announce(Execution& execution, uint8_t phase, size_t payload_bytes) noexcept {
  const Operation& operation = execution.operation;
  execution.fabric.announce(operation.signature, phase, payload_bytes, {operation.epoch, operation.label});
}

std::span<const SourceEntry> entries_of(const Fabric& fabric, Rank peer) noexcept {
  const auto payload = fabric.payload_of(peer);
  return {reinterpret_cast<const SourceEntry*>(payload.data()), payload.size() / sizeof(SourceEntry)};
}

bool is_staged(std::span<const SourceEntry> entries) noexcept {
  return !entries.empty() && entries.front().staged != 0;
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
  for (const Item& item : step.items) {
    if (geometry.is_even()) {
      const uint64_t bytes = peers * item.count * size_of(item.dtype);
      traffic.bytes_sent += bytes;
      traffic.bytes_received += bytes;
      continue;
    }
    if (geometry.same_for_all()) traffic.bytes_sent += peers * geometry.in_bytes(item, me);
    for (Rank peer = 0; peer < execution.fabric.size(); ++peer) {
      if (peer == me) continue;
      if (!geometry.same_for_all()) traffic.bytes_sent += geometry.transfer(item, me, peer).bytes;
      if (geometry.reads_from(peer)) traffic.bytes_received += geometry.transfer(item, peer, me).bytes;
    }
  }
}

}  // namespace shardcomm
