// Who reads what from whom, as pure arithmetic. Every collective on mapped memory is one of these geometries; the
// engines (inline.cc, direct.cc, staged.cc) know nothing else about it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <span>

#include "collectives/collectives.h"

namespace shardcomm {

enum class Pattern : uint8_t {
  kGather,     // reader takes all of every source's shard
  kReduce,     // reader takes its own share of every source and combines
  kReduceAll,  // reader takes the whole of every source and combines
  kBroadcast,  // reader takes the whole of the root
  kExchange,   // reader takes the part that every source holds for it
};

// Bytes of one item that a reader takes from a source.
struct Transfer {
  size_t offset_bytes;  // in the source's `in`
  size_t bytes;
};

class Geometry {
 public:
  // Shards of item.count elements each, or of counts[r] elements.
  Geometry(Pattern pattern, int size, std::span<const size_t> counts = {}, Rank root = 0)
      : pattern_(pattern), size_(size), root_(root), counts_(counts) {}
  // One item of item.count elements in all, divided into shares of `share_count` as far as they go.
  static Geometry divided(Pattern pattern, int size, size_t share_count) {
    Geometry geometry(pattern, size);
    geometry.share_count_ = share_count;
    return geometry;
  }

  Pattern pattern() const noexcept { return pattern_; }
  int size() const noexcept { return size_; }
  bool reduces() const noexcept { return pattern_ == Pattern::kReduce || pattern_ == Pattern::kReduceAll; }
  bool reads_from(Rank source) const noexcept { return pattern_ != Pattern::kBroadcast || source == root_; }
  // Whether all readers take the same bytes of a source.
  bool same_for_all() const noexcept { return pattern_ != Pattern::kReduce && pattern_ != Pattern::kExchange; }

  // Whether every rank takes item.count elements from every other.
  bool is_even() const noexcept { return pattern_ != Pattern::kBroadcast && share_count_ == 0 && counts_.empty(); }

  size_t share_count(const Item& item, Rank r) const noexcept {
    const auto i = static_cast<size_t>(r);
    if (share_count_ != 0) return std::min(share_count_, item.count - std::min(item.count, i * share_count_));
    return counts_.empty() ? item.count : counts_[i];
  }
  size_t share_offset(const Item& item, Rank r) const noexcept {
    const auto i = static_cast<size_t>(r);
    if (share_count_ != 0) return std::min(item.count, i * share_count_);
    if (counts_.empty()) return item.count * i;
    size_t offset = 0;
    for (size_t k = 0; k < i; ++k) offset += counts_[k];
    return offset;
  }

  // Bytes of `in` on rank `source`.
  size_t in_bytes(const Item& item, Rank source) const noexcept {
    const size_t element = size_of(item.dtype);
    switch (pattern_) {
      case Pattern::kGather: return share_count(item, source) * element;
      case Pattern::kReduce: return share_offset(item, size_) * element;
      case Pattern::kExchange: return item.count * static_cast<size_t>(size_) * element;
      case Pattern::kReduceAll: return item.count * element;
      case Pattern::kBroadcast: return source == root_ ? item.count * element : 0;
    }
    return 0;
  }
  Transfer transfer(const Item& item, Rank source, Rank reader) const noexcept {
    const size_t element = size_of(item.dtype);
    switch (pattern_) {
      case Pattern::kReduce: return {share_offset(item, reader) * element, share_count(item, reader) * element};
      case Pattern::kExchange: return {item.count * static_cast<size_t>(reader) * element, item.count * element};
      default: return {0, in_bytes(item, source)};
    }
  }
  // Where the reader puts what it takes from `source`; reductions have one place for all sources.
  std::byte* target(const Item& item, Rank source) const noexcept {
    const size_t element = size_of(item.dtype);
    switch (pattern_) {
      case Pattern::kGather: return item.out + share_offset(item, source) * element;
      case Pattern::kExchange: return item.out + item.count * static_cast<size_t>(source) * element;
      default: return item.out;
    }
  }

 private:
  Pattern pattern_;
  int size_;
  Rank root_ = 0;
  size_t share_count_ = 0;
  std::span<const size_t> counts_;
};

// Items in messages and in the staging ring start at multiples of this, so that no element is ever cut.
inline constexpr size_t kItemAlign = 8;
constexpr size_t align_item(size_t bytes) noexcept { return (bytes + kItemAlign - 1) / kItemAlign * kItemAlign; }

// Walks what a reader takes from a source, item after item, in runs that fit into chunks. Both sides walk alike, so a
// chunk needs no description.
class TransferCursor {
 public:
  struct Run {
    size_t item;
    size_t offset_bytes;  // in the transfer of that item
    size_t bytes;
    size_t position_bytes;  // in the chunk
  };
  TransferCursor(const Geometry& geometry, std::span<const Item> items, Rank source, Rank reader)
      : geometry_(geometry), items_(items), source_(source), reader_(reader) {}

  // Starts a chunk of at most `bytes`, a multiple of kItemAlign. False when nothing is left.
  bool next_chunk(size_t bytes) noexcept {
    skip_empty();
    left_ = bytes;
    position_ = 0;
    return item_ < items_.size();
  }
  // The next run of this chunk; false at its end.
  bool next_run(Run& run) noexcept {
    skip_empty();
    if (item_ == items_.size() || left_ == 0) return false;
    const size_t whole = geometry_.transfer(items_[item_], source_, reader_).bytes;
    const size_t bytes = std::min(whole - offset_, left_);
    run = Run{item_, offset_, bytes, position_};
    offset_ += bytes;
    position_ += align_item(bytes);
    left_ -= std::min(left_, align_item(bytes));
    return true;
  }

 private:
  void skip_empty() noexcept {
    while (item_ < items_.size() && offset_ == geometry_.transfer(items_[item_], source_, reader_).bytes) {
      ++item_;
      offset_ = 0;
    }
  }
  const Geometry& geometry_;
  std::span<const Item> items_;
  Rank source_, reader_;
  size_t item_ = 0, offset_ = 0, left_ = 0, position_ = 0;
};

}  // namespace shardcomm
