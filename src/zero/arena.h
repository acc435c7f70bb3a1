// Offsets in one piece of memory of fixed capacity: which part of it is whose. Pure: it touches no memory, so that the
// estimate runs the same allocator as the engine.
#pragma once
#include <cstddef>
#include <map>
#include <optional>

namespace shardcomm::zero {

// Blocks that live two at a time and alternate, as gathered units do, never fragment it: the first goes to the bottom,
// the next to the top, and so on; only more than two at once are placed between them. Not thread-safe.
class Arena {
 public:
  explicit Arena(size_t capacity) : capacity_(capacity) {}

  // Finds where `bytes` (> 0) should go; nothing when no gap is large enough.
  std::optional<size_t> find(size_t bytes) const;
  bool is_free(size_t offset, size_t bytes) const;
  // [offset, offset + bytes) is free before, and a block until it is released.
  void take(size_t offset, size_t bytes);
  void release(size_t offset);

  size_t capacity() const noexcept { return capacity_; }
  size_t used_bytes() const noexcept { return used_; }
  // Free bytes below the first block, and above the last.
  size_t bottom_gap_bytes() const noexcept;
  size_t top_gap_bytes() const noexcept;

 private:
  size_t capacity_;
  size_t used_ = 0;
  std::map<size_t, size_t> blocks_;  // offset -> bytes, disjoint
};

}  // namespace shardcomm::zero
