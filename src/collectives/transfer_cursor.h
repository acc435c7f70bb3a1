// How items are laid out where a rank copies them for its peers: in messages and in the staging ring.
#pragma once
#include <algorithm>
#include <cstddef>
#include <span>

#include "collectives/geometry.h"

namespace shardcomm {

// Items start at multiples of this in a message and in a chunk, so that no element is cut in two.
inline constexpr size_t kItemAlign = 16;  // the largest element
constexpr size_t align_item(size_t bytes) noexcept { return (bytes + kItemAlign - 1) / kItemAlign * kItemAlign; }

// Walks what a reader takes from a source, item after item, in runs that fit into chunks. Source and reader take the
// same walk, so a chunk needs no description.
class TransferCursor {
 public:
  struct Run {
    size_t item;
    size_t offset_bytes;  // in the transfer of that item
    size_t bytes;
    size_t position_bytes;  // in the chunk
  };
  TransferCursor(const Geometry& geometry, std::span<const Item> items, Rank source, Rank reader)
      : route_(geometry.route(source, reader)),
        range_(geometry.items(source, reader, items.size())),
        items_(items),
        item_(range_.first) {}

  // Starts a chunk of at most `bytes`, a multiple of kItemAlign. False when nothing is left.
  bool next_chunk(size_t bytes) noexcept {
    skip_empty();
    left_ = bytes;
    position_ = 0;
    return item_ < range_.end;
  }
  // The next run of this chunk; false at its end.
  bool next_run(Run& run) noexcept {
    skip_empty();
    if (item_ == range_.end || left_ == 0) return false;
    const size_t bytes = std::min(route_.bytes(items_[item_]) - offset_, left_);
    run = Run{item_, offset_, bytes, position_};
    offset_ += bytes;
    position_ += align_item(bytes);
    left_ -= std::min(left_, align_item(bytes));
    return true;
  }

 private:
  void skip_empty() noexcept {
    while (item_ < range_.end && offset_ == route_.bytes(items_[item_])) {
      ++item_;
      offset_ = 0;
    }
  }
  const Route route_;
  const ItemRange range_;
  const std::span<const Item> items_;
  size_t item_, offset_ = 0, left_ = 0, position_ = 0;
};

}  // namespace shardcomm
