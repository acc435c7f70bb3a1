// Who reads what from whom, as pure arithmetic. Every collective on mapped memory is one of these geometries; the
// engines (inline.cc, direct.cc, staged.cc) know nothing else about it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <numeric>
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

// What one rank takes from one other, of any item; computed once for thousands of them. In elements, or where `even` in
// multiples of an item's count.
struct Route {
  size_t in;      // all of the source's `in`
  size_t offset;  // of what is taken, in it
  size_t taken;
  size_t target;  // in the reader's `out`; reductions have one place for all sources
  bool even;

  size_t unit_bytes(const Item& item) const noexcept { return (even ? item.count : 1) * size_of(item.dtype); }
  size_t in_bytes(const Item& item) const noexcept { return in * unit_bytes(item); }
  size_t offset_bytes(const Item& item) const noexcept { return offset * unit_bytes(item); }
  size_t bytes(const Item& item) const noexcept { return taken * unit_bytes(item); }
  std::byte* place(const Item& item) const noexcept { return item.out + target * unit_bytes(item); }
};

class Geometry {
 public:
  // Shards of item.count elements each, or of counts[r] elements.
  Geometry(Pattern pattern, int size, std::span<const size_t> counts = {}, Rank root = 0)
      : pattern_(pattern), size_(size), root_(root), counts_(counts) {}
  // Of one item: `count` elements in all, divided into shares of `share_count` as far as they go.
  static Geometry divided(Pattern pattern, int size, size_t count, size_t share_count) {
    Geometry geometry(pattern, size);
    geometry.divided_count_ = count;
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
  bool is_even() const noexcept { return pattern_ != Pattern::kBroadcast && has_even_shares(); }

  // Of the shares of ranks 0 … r − 1; of all of them where r is the number of ranks. In the units of a route.
  size_t share_offset(Rank r) const noexcept {
    const auto i = static_cast<size_t>(r);
    if (share_count_ != 0) return std::min(divided_count_, i * share_count_);
    return counts_.empty() ? i : std::accumulate(counts_.begin(), counts_.begin() + r, size_t{0});
  }

  Route route(Rank source, Rank reader) const noexcept {
    const auto s = static_cast<size_t>(source), r = static_cast<size_t>(reader), n = static_cast<size_t>(size_);
    switch (pattern_) {
      case Pattern::kGather: return {share(source), 0, share(source), share_offset(source), has_even_shares()};
      case Pattern::kReduce: return {share_offset(size_), share_offset(reader), share(reader), 0, has_even_shares()};
      case Pattern::kExchange: return {n, r, 1, s, true};
      case Pattern::kReduceAll: return {1, 0, 1, 0, true};
      case Pattern::kBroadcast: break;
    }
    const size_t from_root = source == root_ ? 1 : 0;
    return {from_root, 0, from_root, 0, true};
  }

  // What a message of `source` leaves out: where every reader has a part of its own, nobody reads the source's.
  size_t left_out(Rank source) const noexcept {
    if (same_for_all()) return 0;
    return has_even_shares() ? 1 : share(source);
  }
  // The route through such a message.
  Route message_route(Rank source, Rank reader) const noexcept {
    Route route = this->route(source, reader);
    route.in -= left_out(source);
    if (reader > source) route.offset -= left_out(source);
    return route;
  }

 private:
  bool has_even_shares() const noexcept { return share_count_ == 0 && counts_.empty(); }
  size_t share(Rank r) const noexcept {
    if (share_count_ != 0) return std::min(share_count_, divided_count_ - share_offset(r));
    return counts_.empty() ? 1 : counts_[static_cast<size_t>(r)];
  }

  Pattern pattern_;
  int size_;
  Rank root_ = 0;
  size_t divided_count_ = 0, share_count_ = 0;
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
      : route_(geometry.route(source, reader)), items_(items) {}

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
    const size_t bytes = std::min(route_.bytes(items_[item_]) - offset_, left_);
    run = Run{item_, offset_, bytes, position_};
    offset_ += bytes;
    position_ += align_item(bytes);
    left_ -= std::min(left_, align_item(bytes));
    return true;
  }

 private:
  void skip_empty() noexcept {
    while (item_ < items_.size() && offset_ == route_.bytes(items_[item_])) {
      ++item_;
      offset_ = 0;
    }
  }
  const Route route_;
  const std::span<const Item> items_;
  size_t item_ = 0, offset_ = 0, left_ = 0, position_ = 0;
};

}  // namespace shardcomm
