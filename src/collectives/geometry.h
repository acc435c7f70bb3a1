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

// What each pair of ranks exchanges in kExchangeV, in elements, as one rank knows it.
struct PairOffsets {
  std::span<const uint64_t* const> in;  // [source][n + 1]: before the part for each reader, in the source's `in`
  std::span<const uint64_t> out;        // [n + 1]: before the part from each source, in the `out` of this rank
};

// Items [first, end) of a step.
struct ItemRange {
  size_t first, end;
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
  // Of whole items, each of which is one rank's share: rank r owns items [bounds[r], bounds[r + 1]). In kReduce the
  // reader combines the items that it owns; in kGather, which is in place (in == out), it takes those of their owners.
  static Geometry partitioned(Pattern pattern, int size, std::span<const size_t> bounds) {
    Geometry geometry(pattern, size);
    geometry.bounds_ = bounds.data();
    return geometry;
  }
  // Of one item, where each pair of ranks has a count of its own. Where the targets of readers lie is known of this
  // rank only. The offsets are looked at when a route is asked for.
  static Geometry paired(int size, const PairOffsets& offsets) {
    Geometry geometry(Pattern::kExchangeV, size);
    geometry.pairs_ = &offsets;
    return geometry;
  }

  Pattern pattern() const noexcept { return pattern_; }
  int size() const noexcept { return size_; }
  bool reduces() const noexcept {
    return pattern_ == Pattern::kReduce || pattern_ == Pattern::kReduceAll || pattern_ == Pattern::kReduceTo;
  }
  // Returns whether `reader` takes a part of what `source` has. What lies in its place already is not taken.
  bool reads(Rank source, Rank reader) const noexcept {
    switch (pattern_) {
      case Pattern::kGather: return bounds_ == nullptr || source != reader;
      case Pattern::kReduce:
      case Pattern::kReduceAll:
      case Pattern::kExchange: return true;
      case Pattern::kBroadcast: return source == root_ && source != reader;
      case Pattern::kGatherTo:
      case Pattern::kReduceTo: return reader == root_;
      case Pattern::kScatter: return source == root_;
      case Pattern::kExchangeV: return pair_length(source, reader) != 0;
    }
    return false;
  }
  // Returns whether any peer may read the source. A source that no peer reads announces no bytes.
  bool is_read(Rank source) const noexcept {
    switch (pattern_) {
      case Pattern::kBroadcast:
      case Pattern::kScatter: return source == root_ && size_ > 1;
      case Pattern::kGatherTo:
      case Pattern::kReduceTo: return source != root_;
      default: return true;
    }
  }
  // Whether all readers of a source take the same bytes of it.
  bool same_for_all() const noexcept {
    return pattern_ != Pattern::kReduce && pattern_ != Pattern::kExchange && pattern_ != Pattern::kScatter &&
           pattern_ != Pattern::kExchangeV;
  }
  // A rank that takes what any reader takes, where that is the same for all.
  Rank reader_of(Rank source) const noexcept {
    return pattern_ == Pattern::kGatherTo || pattern_ == Pattern::kReduceTo ? root_ : source;
  }
  // Whether every rank takes item.count elements from every other.
  bool is_even() const noexcept {
    const bool each_from_each = pattern_ == Pattern::kGather || pattern_ == Pattern::kReduce ||
                                pattern_ == Pattern::kReduceAll || pattern_ == Pattern::kExchange;
    return each_from_each && bounds_ == nullptr && share_unit() == Unit::kItemCounts;
  }
  // The items of which `reader` takes a part from `source`, out of `count` items.
  ItemRange items(Rank source, Rank reader, size_t count) const noexcept {
    if (bounds_ == nullptr) return {0, count};
    const auto owner = static_cast<size_t>(pattern_ == Pattern::kReduce ? reader : source);
    return {bounds_[owner], bounds_[owner + 1]};
  }
  // The length of an item that has been gathered, in the unit of the routes.
  size_t gathered_length() const noexcept { return bounds_ == nullptr ? share_offset(size_) : 1; }

  // The length of the shares of ranks 0 … r − 1, in the unit of the routes. The number of ranks gives that of all
  // shares.
  size_t share_offset(Rank r) const noexcept {
    const auto i = static_cast<size_t>(r);
    if (share_count_ != 0) return std::min(divided_count_, i * share_count_);
    return counts_.empty() ? i : std::accumulate(counts_.begin(), counts_.begin() + r, size_t{0});
  }

  Route route(Rank source, Rank reader) const noexcept {
    if (bounds_ != nullptr) return whole(1);
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
      case Pattern::kExchange: return part(1, static_cast<size_t>(source), reader);
      case Pattern::kScatter: return part(source == root_ ? 1 : 0, 0, reader);
      case Pattern::kGatherTo: return whole(1, reader == root_ ? 1 : 0, static_cast<size_t>(source));
      case Pattern::kReduceTo: return whole(1, reader == root_ ? 1 : 0);
      case Pattern::kReduceAll: return whole(1);
      case Pattern::kBroadcast: return whole(source == root_ ? 1 : 0);
      case Pattern::kExchangeV: break;
    }
    return {.source_length = pairs_->in[static_cast<size_t>(source)][size_],
            .source_offset = pairs_->in[static_cast<size_t>(source)][reader],
            .length = pair_length(source, reader),
            .target_offset = pairs_->out[static_cast<size_t>(source)],
            .unit = Unit::kElements};
  }

  // The length that a message of `source` omits: where every reader takes a part of its own, no peer takes the part
  // that the source has for itself.
  size_t omitted_length(Rank source) const noexcept { return same_for_all() ? 0 : route(source, source).length; }
  // The route through such a message.
  Route message_route(Rank source, Rank reader) const noexcept {
    Route route = this->route(source, reader);
    route.source_length -= omitted_length(source);
    if (reader > source) route.source_offset -= omitted_length(source);
    return route;
  }

 private:
  // All of a source's `in`.
  static Route whole(size_t length) noexcept { return whole(length, length); }
  // The same, of which the reader takes `taken`: all or nothing.
  static Route whole(size_t length, size_t taken, size_t target_offset = 0) noexcept {
    return {.source_length = length,
            .source_offset = 0,
            .length = taken,
            .target_offset = target_offset * taken,
            .unit = Unit::kItemCounts};
  }
  // The reader's of the parts of item.count elements that a source holds, one for each rank. `parts`: 0 of a source
  // that holds none, else 1.
  Route part(size_t parts, size_t target_offset, Rank reader) const noexcept {
    return {.source_length = parts * static_cast<size_t>(size_),
            .source_offset = parts * static_cast<size_t>(reader),
            .length = parts,
            .target_offset = target_offset,
            .unit = Unit::kItemCounts};
  }
  size_t pair_length(Rank source, Rank reader) const noexcept {
    const uint64_t* const offsets = pairs_->in[static_cast<size_t>(source)];
    return offsets[reader + 1] - offsets[reader];
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
  const size_t* bounds_ = nullptr;      // not null: of a partition
  const PairOffsets* pairs_ = nullptr;  // of kExchangeV
};

}  // namespace shardcomm
