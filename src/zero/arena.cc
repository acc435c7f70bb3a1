#include "zero/arena.h"

#include <iterator>

#include "base/check.h"

namespace shardcomm::zero {

std::optional<size_t> Arena::find(size_t bytes) const {
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
  return bottom ? bottom : top ? top : between;
}

bool Arena::is_free(size_t offset, size_t bytes) const {
  if (offset > capacity_ || bytes > capacity_ - offset) return false;
  const auto next = blocks_.lower_bound(offset);
  if (next != blocks_.end() && next->first < offset + bytes) return false;
  if (next == blocks_.begin()) return true;
  const auto& [begin, size] = *std::prev(next);
  return begin + size <= offset;
}

void Arena::take(size_t offset, size_t bytes) {
  SHARDCOMM_CHECK(bytes > 0 && is_free(offset, bytes), "a block is taken from what is free");
  blocks_.emplace(offset, bytes);
  used_ += bytes;
}

void Arena::release(size_t offset) {
  const auto block = blocks_.find(offset);
  SHARDCOMM_CHECK(block != blocks_.end(), "a block is released once, where it was taken");
  used_ -= block->second;
  blocks_.erase(block);
}

size_t Arena::bottom_gap_bytes() const noexcept { return blocks_.empty() ? capacity_ : blocks_.begin()->first; }

size_t Arena::top_gap_bytes() const noexcept {
  return blocks_.empty() ? capacity_ : capacity_ - (blocks_.rbegin()->first + blocks_.rbegin()->second);
}

}  // namespace shardcomm::zero
