#include "zero/arena.h"

#include "base/check.h"

namespace shardcomm::zero {

std::optional<size_t> Arena::allocate(size_t bytes) {
  std::optional<size_t> bottom, top, between;
  size_t between_gap = 0;
  size_t gap_begin = 0;
  const auto consider = [&](size_t gap_end) {
    const size_t gap = gap_end - gap_begin;
    if (gap < bytes) return;
    if (gap_begin == 0) {
      bottom = 0;
    } else if (gap_end == capacity_) {
      top = gap_end - bytes;
    } else if (!between || gap < between_gap) {
      between = gap_begin;
      between_gap = gap;
    }
  };
  for (const auto& [offset, size] : blocks_) {
    consider(offset);
    gap_begin = offset + size;
  }
  consider(capacity_);
  const auto place = bottom ? bottom : top ? top : between;
  if (place) {
    blocks_.emplace(*place, bytes);
    used_ += bytes;
  }
  return place;
}

void Arena::release(size_t offset) {
  const auto block = blocks_.find(offset);
  SHARDCOMM_CHECK(block != blocks_.end(), "a block is released once, where it was allocated");
  used_ -= block->second;
  blocks_.erase(block);
}

}  // namespace shardcomm::zero
