// Who reads what from whom, as pure arithmetic. Every collective on mapped memory is one of these geometries; the
// engines (inline.cc, direct.cc, staged.cc) know nothing else about it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

#include "collectives/operation.h"

namespace shardcomm {

// The unit in which the lengths and offsets of a route count.
enum class Unit : uint8_t {
  kElements,    // elements
  kItemCounts,  // multiples of the item's count, so that one route serves thousands of items of different counts
};

// The part of every item that one rank (the reader) takes from another (the source).
struct Route {
  size_t source_length;  // of the source's whole `in`
  size_t source_offset;  // into it, to the part that the reader takes
  size_t length;         // of that part; 0: the reader takes nothing
  size_t target_offset;  // into the reader's `out`; 0 in reductions, which combine all sources in one place
  Unit unit;

  size_t unit_bytes(const Item& item) const noexcept {
    return (unit == Unit::kItemCounts ? item.count : 1) * size_of(item.dtype);
  }
  size_t source_bytes(const Item& item) const noexcept { return source_length * unit_bytes(item); }
  size_t source_offset_bytes(const Item& item) const noexcept { return source_offset * unit_bytes(item); }
  size_t bytes(const Item& item) const noexcept { return length * unit_bytes(item); }
  std::byte* target(const Item& item) const noexcept { return item.out + target_offset * unit_bytes(item); }
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
  // Returns whether `reader` takes a part of what `source` has. The reader makes no difference in any pattern so far.
  bool reads(Rank source, Rank /*reader*/) const noexcept { return pattern_ != Pattern::kBroadcast || source == root_; }
  // Returns whether any rank reads the source. A source that no rank reads announces no bytes.
  bool is_read(Rank source) const noexcept {
    for (Rank reader = 0; reader < size_; ++reader) {
      if (reads(source, reader)) return true;
    }
    return false;
  }
  // Whether all readers take the same bytes of a source.
  bool same_for_all() const noexcept { return pattern_ != Pattern::kReduce && pattern_ != Pattern::kExchange; }
  // Whether every rank takes item.count elements from every other.
  bool is_even() const noexcept { return pattern_ != Pattern::kBroadcast && share_unit() == Unit::kItemCounts; }

  // The length of the shares of ranks 0 … r − 1, in the unit of the routes. The number of ranks gives that of all
  // shares.
  size_t share_offset(Rank r) const noexcept {
    const auto i = static_cast<size_t>(r);
    if (share_count_ != 0) return std::min(divided_count_, i * share_count_);
    return counts_.empty() ? i : std::accumulate(counts_.begin(), counts_.begin() + r, size_t{0});
  }

  Route route(Rank source, Rank reader) const noexcept {
    switch (pattern_) {
      case Pattern::kGather:
        return {.source_length = share(source),
                .source_offset = 0,
                .length = share(source),
                .target_offset = share_offset(source),
                .unit = share_unit()};
      case Pattern::kReduce:
        return {.source_length = share_offset(size_),
                .source_offset = share_offset(reader),
                .length = share(reader),
                .target_offset = 0,
                .unit = share_unit()};
      case Pattern::kExchange:
        return {.source_length = static_cast<size_t>(size_),
                .source_offset = static_cast<size_t>(reader),
                .length = 1,
                .target_offset = static_cast<size_t>(source),
                .unit = Unit::kItemCounts};
      case Pattern::kReduceAll: return whole(1);
      case Pattern::kBroadcast: break;
    }
    return whole(source == root_ ? 1 : 0);
  }

  // The length that a message of `source` omits: where every reader takes a part of its own, no peer takes the part
  // that the source has for itself.
  size_t omitted_length(Rank source) const noexcept {
    if (same_for_all()) return 0;
    return share_unit() == Unit::kItemCounts ? 1 : share(source);
  }
  // The route through such a message.
  Route message_route(Rank source, Rank reader) const noexcept {
    Route route = this->route(source, reader);
    route.source_length -= omitted_length(source);
    if (reader > source) route.source_offset -= omitted_length(source);
    return route;
  }

 private:
  // All of a source's `in`, to the beginning of the reader's `out`.
  static Route whole(size_t length) noexcept {
    return {
        .source_length = length, .source_offset = 0, .length = length, .target_offset = 0, .unit = Unit::kItemCounts};
  }
  Unit share_unit() const noexcept {
    return share_count_ == 0 && counts_.empty() ? Unit::kItemCounts : Unit::kElements;
  }
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

}  // namespace shardcomm
