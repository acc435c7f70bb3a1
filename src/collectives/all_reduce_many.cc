// all_reduce of many tensors. Small: every rank shows all its data and every rank combines all of it. Large: as
// all_reduce does it in two steps, but what a rank owns is a run of whole tensors, the first and the last of them cut
// where its share begins and ends, rather than a share of each: so a rank's rows are as few as there are tensors in
// its share, and a gather copies them whole.
// Steps: inline 1 signal, n − 1 times the data read; direct 3 signals, 2(n − 1)/n of the data.
#include <algorithm>

#include "collectives/engine.h"
#include "collectives/scratch_buffers.h"
#include "collectives/source_table.h"

namespace shardcomm {
namespace {

constexpr size_t kCutAlignBytes = 64;  // what two ranks own never meets in one cache line of an aligned buffer

Item part_of(const Item& item, size_t begin_bytes, size_t bytes) noexcept {
  Item part = item;
  part.in += begin_bytes;
  part.out += begin_bytes;
  part.count = bytes / size_of(item.dtype);
  return part;
}

// Cuts the items into one run of bytes for each of the first `owners` ranks, about equally long.
class Cut {
 public:
  Cut(std::span<const Item> items, Scratch::Buffers& buffers) noexcept : items_(items), buffers_(buffers) {
    for (const Item& item : items) left_bytes_ += item.count * size_of(item.dtype);
  }
  void run(int size, int owners) {
    buffers_.shares.clear();
    buffers_.bounds.assign(1, 0);
    for (int rank = 0; rank < size; ++rank) {
      if (rank < owners) take(left_bytes_ / static_cast<size_t>(owners - rank));
      buffers_.bounds.push_back(buffers_.shares.size());
    }
  }

 private:
  void take(size_t wanted_bytes) {
    while (wanted_bytes != 0) {
      const size_t bytes = items_[next_].count * size_of(items_[next_].dtype) - offset_bytes_;
      const size_t taken = std::min(bytes, (wanted_bytes + kCutAlignBytes - 1) / kCutAlignBytes * kCutAlignBytes);
      if (taken != 0) buffers_.shares.push_back(part_of(items_[next_], offset_bytes_, taken));
      left_bytes_ -= taken;
      wanted_bytes -= std::min(wanted_bytes, taken);
      offset_bytes_ = taken == bytes ? 0 : offset_bytes_ + taken;
      if (taken == bytes) ++next_;
    }
  }

  const std::span<const Item> items_;
  Scratch::Buffers& buffers_;
  size_t left_bytes_ = 0;               // that no rank owns yet
  size_t next_ = 0, offset_bytes_ = 0;  // of what is left: its first item, and where in it that begins
};

// In place is safe: a rank writes only what it owns of its buffers, which peers read in the second step only. Nobody
// announces that step before having finished the first, so its end needs no signal of its own.
Status all_reduce_items(Execution& execution, std::span<const Item> items, int owners) {
  Scratch::Buffers& buffers = execution.scratch.buffers();
  const int size = execution.fabric.size;
  Cut(items, buffers).run(size, owners);
  const auto reduce = Geometry::partitioned(Pattern::kReduce, size, buffers.bounds);
  SHARDCOMM_TRY(run_direct(execution, {.geometry = reduce, .items = buffers.shares, .phase = 0, .last = false}));

  for (Item& share : buffers.shares) share.in = share.out;
  const auto gather = Geometry::partitioned(Pattern::kGather, size, buffers.bounds);
  return run_direct(execution, {.geometry = gather, .items = buffers.shares, .phase = 1});
}

}  // namespace

Status all_reduce_many_direct(Execution& execution) {
  // Each owner but the last cuts at most one item, and all shares of a step must fit one announcement.
  constexpr size_t kMostOwners = kMaxEntries / 2;
  const size_t owners = std::min(static_cast<size_t>(execution.fabric.size), kMostOwners);
  std::span<const Item> left = execution.operation.items;
  do {
    const size_t count = std::min(kMaxEntries - owners + 1, left.size());
    SHARDCOMM_TRY(all_reduce_items(execution, left.first(count), static_cast<int>(owners)));
    left = left.subspan(count);
  } while (!left.empty());
  return {};
}

}  // namespace shardcomm
