// A table of reductions for the kernels: a row an item, and of each row the addresses at all sources.
#pragma once
#include <span>
#include <vector>

#include "collectives/execution.h"
#include "kernels/kernels.h"

namespace shardcomm {

// Not copyable: rows point into it.
class ReduceRows {
 public:
  ReduceRows() = default;
  ReduceRows(const ReduceRows&) = delete;
  ReduceRows& operator=(const ReduceRows&) = delete;
  ReduceRows(ReduceRows&&) noexcept = default;
  ReduceRows& operator=(ReduceRows&&) noexcept = default;

  bool is_empty() const noexcept { return segments_.empty(); }
  bool is_full() const noexcept { return segments_.size() == capacity_; }

  // Empties the table and makes room for so many rows. Allocates only where it has never had that room.
  void reset(size_t rows, size_t sources) {
    clear();
    capacity_ = rows;
    source_count_ = sources;
    segments_.reserve(rows);
    if (addresses_.size() < rows * sources) addresses_.resize(rows * sources);
  }
  void clear() noexcept {
    groups_.clear();
    segments_.clear();
  }
  // The addresses of the row that comes next, by source, to be filled in before it is added. Not of a full table.
  std::span<const void*> next() noexcept {
    return {addresses_.data() + segments_.size() * source_count_, source_count_};
  }
  // Adds that row: `count` elements of each source, combined into item.out.
  void add(const Item& item, size_t count) {
    const Group group{.dtype = item.dtype, .op = item.op, .scale = item.scale, .first = segments_.size()};
    if (groups_.empty() || !groups_.back().is_alike(group)) {
      groups_.push_back(group);
    }
    segments_.push_back({.target = item.out, .sources = next().data(), .count = count});
  }

  // Launches one kernel for each run of rows of one dtype, op and scale.
  Status launch(const Execution& execution) const;

 private:
  struct Group {
    DType dtype;
    ReduceOp op;
    double scale;
    size_t first;  // of its rows, which end where the next group begins
    bool is_alike(const Group& other) const noexcept {
      return dtype == other.dtype && op == other.op && scale == other.scale;
    }
  };
  size_t capacity_ = 0, source_count_ = 0;
  std::vector<Group> groups_;
  std::vector<kernels::ReduceSegment> segments_;
  std::vector<const void*> addresses_;  // by row, then by source
};

}  // namespace shardcomm
