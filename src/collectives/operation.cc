// What a call comes to: the signature that ranks compare, and what the planner asks. One pass over the items, because
// there can be thousands of them.
#include <algorithm>

#include "collectives/collectives.h"
#include "collectives/geometry.h"
#include "collectives/placement.h"
#include "collectives/word_hash.h"

namespace shardcomm {
namespace {

bool has_many_items(Collective collective) noexcept {
  return collective == Collective::kAllGatherMany || collective == Collective::kReduceScatterMany;
}

// How many times item.count elements the whole buffer has, and the most that a rank shows its peers of it; of the even
// forms. One rank has no peers, but as much to copy.
struct Multiples {
  size_t whole, announced;
};
Multiples multiples_of(Collective collective, size_t size) noexcept {
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kAllGatherMany: return {size, 1};
    case Collective::kReduceScatter:
    case Collective::kReduceScatterMany:
    case Collective::kAllToAll: return {size, std::max<size_t>(size - 1, 1)};
    default: return {1, 1};
  }
}

void add_counts(Operation& operation) noexcept {
  size_t sum = 0, largest = 0;
  for (const size_t count : operation.counts) {
    sum += count;
    largest = std::max(largest, count);
  }
  const size_t element = size_of(operation.items.front().dtype);
  operation.signature.count += sum;
  operation.signature.detail = XXH3_64bits(operation.counts.data(), operation.counts.size_bytes());
  operation.workload.whole_bytes = align_item(sum * element);
  operation.workload.announced_bytes =
      align_item((operation.collective == Collective::kAllGatherV ? largest : sum) * element);
}

}  // namespace

void prepare(Operation& operation, int size) noexcept {
  Signature& signature = operation.signature = {};
  Workload& workload = operation.workload = {};
  operation.item_bytes = 0;
  workload.collective = operation.collective;
  workload.memory = operation.mosaic ? SourceKind::kMosaic : SourceKind::kMapped;
  signature.collective = static_cast<uint8_t>(operation.collective);
  signature.root = operation.root;
  const bool many = has_many_items(operation.collective);
  const Multiples multiples = multiples_of(operation.collective, static_cast<size_t>(size));
  WordHash hash;
  for (const Item& item : operation.items) {
    const size_t bytes = item.count * size_of(item.dtype);
    operation.item_bytes += bytes;
    workload.whole_bytes += align_item(bytes * multiples.whole);
    workload.announced_bytes += align_item(bytes * multiples.announced);
    signature.count += item.count;
    if (many) hash.add(item.count << 16 | static_cast<uint64_t>(item.dtype) << 8 | static_cast<uint64_t>(item.op));
  }
  if (!operation.items.empty()) {
    signature.dtype = static_cast<uint8_t>(operation.items.front().dtype);
    signature.op = static_cast<uint8_t>(operation.items.front().op);
  }
  if (many) {
    signature.root = static_cast<int32_t>(operation.items.size());
    signature.detail = hash.value();
  }
  if (!operation.counts.empty()) add_counts(operation);
  if (!operation.label.empty()) {
    signature.detail ^= XXH3_64bits(operation.label.data(), operation.label.size());
  }
}

size_t KnownCall::bytes(int size) const noexcept {
  return sizeof(KnownCall) + items.size() * sizeof(Item) + placement_bytes(size, items.size());
}

}  // namespace shardcomm
