// What a call comes to: the signature that ranks compare, and what the planner asks. One pass over the items, because
// there can be thousands of them.
#include <algorithm>
#include <numeric>

#include "base/hash.h"
#include "collectives/operation.h"
#include "collectives/transfer_cursor.h"

namespace shardcomm {
namespace {

void add_counts(Operation& operation) noexcept {
  size_t sum = 0, largest = 0;
  for (const size_t count : operation.counts) {
    sum += count;
    largest = std::max(largest, count);
  }
  const size_t element = size_of(operation.items.front().dtype);
  operation.signature.call.count += sum;
  operation.signature.detail = hash_bytes(operation.counts.data(), operation.counts.size_bytes());
  operation.workload.whole_bytes = align_item(sum * element);
  operation.workload.announced_bytes =
      align_item((traits(operation.call().collective).reduces() ? sum : largest) * element);
}

// Each rank's counts are its own, so nothing of them is part of what ranks agree on.
void add_own_counts(Operation& operation) noexcept {
  const size_t element = size_of(operation.items.front().dtype);
  const size_t in_count = std::accumulate(operation.counts.begin(), operation.counts.end(), size_t{0});
  const size_t out_count = std::accumulate(operation.out_counts.begin(), operation.out_counts.end(), size_t{0});
  operation.workload.whole_bytes = align_item(std::max(in_count, out_count) * element);
  operation.workload.announced_bytes = align_item(in_count * element);
}

// Hashes what may differ from item to item. It is a function of its own, because the hash's buffer would slow every
// other call.
[[gnu::noinline]] uint64_t hash_of(std::span<const Item> items) noexcept {
  WordHash hash;
  for (const Item& item : items) {
    hash.add(item.count << 16 | static_cast<uint64_t>(item.dtype) << 8 | static_cast<uint64_t>(item.op));
  }
  return hash.value();
}

}  // namespace

void prepare(Operation& operation, int size) noexcept {
  Call& call = operation.signature.call;
  Workload& workload = operation.workload;
  const CollectiveTraits& has = traits(call.collective);
  const size_t whole = has.whole(static_cast<size_t>(size)), announced = has.announced(static_cast<size_t>(size));
  call.count = 0;
  operation.signature.detail = 0;
  operation.item_bytes = 0;
  uint64_t scales = 0;  // 0 where all are 1
  workload = {.collective = call.collective,
              .whole_bytes = 0,
              .announced_bytes = 0,
              .memory = call.kind == CallKind::kMosaic ? SourceKind::kMosaic : SourceKind::kMapped};
  for (const Item& item : operation.items) {
    const size_t bytes = item.count * size_of(item.dtype);
    operation.item_bytes += bytes;
    workload.whole_bytes += align_item(bytes * whole);
    workload.announced_bytes += align_item(bytes * announced);
    call.count += item.count;
    if (item.scale != 1) [[unlikely]]
      scales = hash_bytes(&item.scale, sizeof item.scale, scales + item.count);
  }
  if (!has.is_many && !operation.items.empty()) {
    call.dtype = operation.items.front().dtype;
    call.op = operation.items.front().op;
  }
  if (has.is_many) {
    call.root_or_items = static_cast<int32_t>(operation.items.size());
    operation.signature.detail = hash_of(operation.items);
  }
  if (has.is_ragged) add_counts(operation);
  if (has.has_own_counts()) add_own_counts(operation);
  operation.signature.detail ^= scales;
  if (!operation.label.empty()) {
    operation.signature.detail ^= hash_text(operation.label);
  }
}

}  // namespace shardcomm
