// The large-message engine: every rank reads its peers' memory where it lies, so each byte is copied once. Gathers are
// n − 1 reads of a shard; reductions read all n sources in rank order and write once, so that there is one rounding and
// the bits depend on nothing but the inputs.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "collectives/engine.h"
#include "collectives/placement.h"
#include "collectives/source_table.h"
#include "kernels/kernels.h"

namespace shardcomm {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kTableRows = 64;  // of tables that are not kept: their cost is spread, and they stay in the caches

Status unreadable(Rank peer) {
  return Status(Code::kFailedPrecondition,
                fmt::format("rank {} offers memory in a window that this rank has destroyed", peer));
}

// Calls run(part, begin, end) for ranges that make up [0, bytes), one a thread where that is worth it.
template <class Run>
Status in_parts(HostTeam& team, size_t bytes, const Run& run) {
  const int parts = team.parts_for(bytes);
  if (parts == 1) return run(size_t{0}, size_t{0}, bytes);
  std::vector<Status> results(static_cast<size_t>(parts));
  const size_t part_bytes = bytes / results.size() / kPage * kPage;
  team.run(parts, [&](int i) {
    const auto part = static_cast<size_t>(i);
    results[part] = run(part, part * part_bytes, i + 1 == parts ? bytes : (part + 1) * part_bytes);
  });
  for (Status& result : results) SHARDCOMM_TRY(std::move(result));
  return {};
}

// The tables of what is alike; null: none are kept of this step.
Placement* kept(const Step& step) noexcept {
  return step.placement != nullptr && step.placement->windows != 0 ? step.placement : nullptr;
}

// Where this rank begins among the items. Ranks that go through the same tensors at the same time write next to what
// the others read, and their processors fetch ahead into each other's lines.
class ItemOrder {
 public:
  ItemOrder(size_t items, const Fabric& fabric) noexcept
      : items_(items), first_(items * static_cast<size_t>(fabric.rank()) / static_cast<size_t>(fabric.size())) {}
  size_t operator[](size_t i) const noexcept { return i < items_ - first_ ? first_ + i : i - (items_ - first_); }

 private:
  size_t items_, first_;
};

// Copies from one source, row after row.
class DirectCopy {
 public:
  // `kept`: the rows are to be found there later; null: they are not.
  DirectCopy(Execution& execution, const Step& step, Rank source, const SourceTable& offered, bool alike,
             std::vector<kernels::CopySegment>* kept)
      : execution_(execution),
        step_(step),
        source_(source),
        offered_(offered),
        alike_(alike),
        kept_(kept),
        rows_(kept != nullptr ? *kept : unkept()) {}

  Status run() {
    if (rows_.empty()) SHARDCOMM_TRY(find_rows());
    return copy();
  }

 private:
  static std::vector<kernels::CopySegment>& unkept() {
    thread_local std::vector<kernels::CopySegment> rows;
    rows.clear();
    return rows;
  }

  // What is mapped becomes a row; the rest is read at once.
  Status find_rows() {
    const Fabric& fabric = execution_.fabric;
    const Route route = step_.geometry.route(source_, fabric.rank());
    const Route own = step_.geometry.route(fabric.rank(), fabric.rank());
    const bool gathers = step_.geometry.pattern() == Pattern::kGather;
    const ItemOrder order(step_.items.size(), fabric);
    rows_.reserve(kept_ != nullptr ? step_.items.size() : kTableRows);
    for (size_t k = 0; k < step_.items.size(); ++k) {
      const size_t i = order[k];
      const Item& item = step_.items[i];
      const size_t bytes = route.bytes(item);
      if (bytes == 0) continue;
      std::byte* const target = route.place(item);
      const bool in_place = gathers && item.in == own.place(item);
      if (const std::byte* base = base_of(i, in_place ? target : item.in); base != nullptr) {
        SHARDCOMM_TRY(add({target, base + route.offset_bytes(item), bytes}));
      } else {
        SHARDCOMM_TRY(attach(target, offered_.entries[i].address + route.offset_bytes(item), bytes));
      }
    }
    return {};
  }

  // Of item i at the source; `like`: what lies here where that lies there, on ranks that are alike. Null: not mapped.
  const std::byte* base_of(size_t i, const std::byte* like) {
    if (source_ == execution_.fabric.rank()) return step_.items[i].in;
    if (alike_) return execution_.sources.window_of(like, 1)->counterpart(source_, like);
    return execution_.sources.map(source_, offered_.entries[i]);
  }

  Status add(const kernels::CopySegment& row) {
    if (kept_ == nullptr && rows_.size() == kTableRows) {
      SHARDCOMM_TRY(copy());
      rows_.clear();
    }
    rows_.push_back(row);
    return {};
  }

  Status copy() const {
    return kernels::launch(kernels::CopySegmentsLaunch{rows_, execution_.footprint_bytes, &execution_.team},
                           StreamRef::caller());
  }

  Status attach(std::byte* target, uint64_t address, size_t bytes) const {
    Fabric& fabric = execution_.fabric;
    if (fabric.attach() == Attach::kNever) return unreadable(source_);
    return in_parts(execution_.team, bytes, [&](size_t, size_t begin, size_t end) {
      return fabric.read(source_, target + begin, address + begin, end - begin);
    });
  }

  Execution& execution_;
  const Step& step_;
  const Rank source_;
  const SourceTable& offered_;
  const bool alike_;
  std::vector<kernels::CopySegment>* const kept_;
  std::vector<kernels::CopySegment>& rows_;
};

}  // namespace

Status copy_from(Execution& execution, const Step& step, Rank source, uint64_t own_layout) {
  const bool own = source == execution.fabric.rank();
  const SourceTable offered = own ? SourceTable() : read_table(execution.fabric, step, source);
  const bool alike = own || offered.is_like(own_layout);
  Placement* const placement = alike ? kept(step) : nullptr;
  auto* const rows = placement != nullptr ? &placement->copies[static_cast<size_t>(source)] : nullptr;
  return DirectCopy(execution, step, source, offered, alike, rows).run();
}

namespace {

// Each rank in an order of its own, so that at any moment the sources of all ranks differ.
Status gather(Execution& execution, const Step& step, uint64_t own_layout) {
  for (const Rank source : execution.reading_order) {
    if (step.geometry.reads_from(source)) SHARDCOMM_TRY(copy_from(execution, step, source, own_layout));
  }
  return {};
}

// What a thread's reductions need, kept from one to the next.
struct ReduceMemory {
  std::vector<SourceTable> tables;  // by rank
  ReduceRows rows;
  std::vector<std::byte> pieces;      // of attached sources, by part of the share, then by rank
  std::vector<const void*> attached;  // what a part combines: a piece, or where it is mapped
};

class DirectReduce {
 public:
  DirectReduce(Execution& execution, const Step& step, uint64_t own_layout, ReduceMemory& memory)
      : execution_(execution), fabric_(execution.fabric), step_(step), memory_(memory), all_alike_(own_layout != 0) {
    memory.tables.resize(size());
    for (Rank r = 0; r < fabric_.size(); ++r) {
      if (r == fabric_.rank()) continue;
      SourceTable& table = memory.tables[static_cast<size_t>(r)] = read_table(fabric_, step, r);
      all_alike_ = all_alike_ && table.is_like(own_layout);
    }
  }

  Status run() {
    Placement* const placement = all_alike_ ? kept(step_) : nullptr;
    if (placement == nullptr) {
      memory_.rows.clear();
      SHARDCOMM_TRY(find_rows(memory_.rows, std::min(kTableRows, step_.items.size())));
      return reduce(memory_.rows);
    }
    if (placement->reduction.segments.empty()) SHARDCOMM_TRY(find_rows(placement->reduction, step_.items.size()));
    return reduce(placement->reduction);
  }

 private:
  struct Share {  // of an item
    size_t offset_bytes, bytes;
  };
  size_t size() const noexcept { return static_cast<size_t>(fabric_.size()); }

  // What is mapped at every rank becomes a row, of which there is room for `most` at a time; the rest is done at once.
  Status find_rows(ReduceRows& rows, size_t most) {
    rows.sources.resize(most * size());
    rows.segments.reserve(most);
    const Route route = step_.geometry.route(fabric_.rank(), fabric_.rank());  // the same from every source
    const ItemOrder order(step_.items.size(), fabric_);
    for (size_t k = 0; k < step_.items.size(); ++k) {
      const size_t i = order[k];
      const Item& item = step_.items[i];
      const Share share{route.offset_bytes(item), route.bytes(item)};
      if (share.bytes == 0) continue;
      if (rows.segments.size() == most) {
        SHARDCOMM_TRY(reduce(rows));
        rows.clear();
      }
      const void** const sources = rows.sources.data() + rows.segments.size() * size();
      if (!find_sources(i, share.offset_bytes, sources)) {
        SHARDCOMM_TRY(reduce_attached(i, share, {sources, size()}));
        continue;
      }
      const bool alike =
          !rows.groups.empty() && rows.groups.back().dtype == item.dtype && rows.groups.back().op == item.op;
      if (!alike) rows.groups.push_back({item.dtype, item.op, rows.segments.size()});
      rows.segments.push_back({item.out, sources, share.bytes / size_of(item.dtype)});
    }
    return {};
  }

  // Where this rank's share of item i lies at every rank; null: to be attached. Gives whether it is mapped everywhere.
  bool find_sources(size_t i, size_t offset_bytes, const void** sources) {
    const Item& item = step_.items[i];
    if (all_alike_) {
      const MappedWindow& window = *execution_.sources.window_of(item.in, 1);
      for (Rank r = 0; r < fabric_.size(); ++r)
        sources[r] = (r == fabric_.rank() ? item.in : window.counterpart(r, item.in)) + offset_bytes;
      return true;
    }
    bool all_mapped = true;
    for (size_t k = 0; k < size(); ++k) {
      const auto r = static_cast<Rank>(k);
      const std::byte* base = r == fabric_.rank() ? item.in : execution_.sources.map(r, memory_.tables[k].entries[i]);
      sources[k] = base == nullptr ? nullptr : base + offset_bytes;
      all_mapped = all_mapped && base != nullptr;
    }
    return all_mapped;
  }

  Status reduce(const ReduceRows& rows) const {
    const std::span segments(rows.segments);
    for (size_t g = 0; g < rows.groups.size(); ++g) {
      const auto& [dtype, op, first] = rows.groups[g];
      const size_t end = g + 1 < rows.groups.size() ? rows.groups[g + 1].first : segments.size();
      const kernels::ReduceSegmentsLaunch table{segments.subspan(first, end - first), size(),          dtype, op,
                                                execution_.footprint_bytes,           &execution_.team};
      SHARDCOMM_TRY(kernels::launch(table, StreamRef::caller()));
    }
    return {};
  }

  // mapped[k]: the share of rank k, or null where it has to be attached.
  Status reduce_attached(size_t i, const Share& share, std::span<const void* const> mapped) {
    const auto parts = static_cast<size_t>(execution_.team.parts_for(share.bytes));
    const size_t piece = std::min(execution_.chunk_bytes, (share.bytes / parts / kPage + 1) * kPage);
    memory_.pieces.resize(std::max(memory_.pieces.size(), parts * size() * piece));
    memory_.attached.resize(std::max(memory_.attached.size(), parts * size()));
    return in_parts(execution_.team, share.bytes, [&](size_t part, size_t begin, size_t end) {
      return reduce_attached_part(i, share.offset_bytes, mapped, piece, part, begin, end);
    });
  }

  // Piece after piece, so that what has been attached is still in the caches when it is combined.
  Status reduce_attached_part(size_t i, size_t share_offset, std::span<const void* const> mapped, size_t piece,
                              size_t part, size_t begin, size_t end) {
    std::byte* const pieces = memory_.pieces.data() + part * size() * piece;
    const std::span<const void*> sources(memory_.attached.data() + part * size(), size());
    for (size_t offset = begin; offset < end; offset += piece) {
      const size_t run = std::min(piece, end - offset);
      for (size_t k = 0; k < size(); ++k) {
        if (mapped[k] != nullptr) {
          sources[k] = static_cast<const std::byte*>(mapped[k]) + offset;
          continue;
        }
        if (fabric_.attach() == Attach::kNever) return unreadable(static_cast<Rank>(k));
        std::byte* const into = pieces + k * piece;
        const uint64_t address = memory_.tables[k].entries[i].address + share_offset + offset;
        SHARDCOMM_TRY(fabric_.read(static_cast<Rank>(k), into, address, run));
        sources[k] = into;
      }
      SHARDCOMM_TRY(reduce_run(execution_, step_.items[i], offset, run, sources));
    }
    return {};
  }

  Execution& execution_;
  Fabric& fabric_;
  const Step& step_;
  ReduceMemory& memory_;
  bool all_alike_;  // the layouts of all ranks
};

Status reduce(Execution& execution, const Step& step, uint64_t own_layout) {
  thread_local ReduceMemory memory;
  return DirectReduce(execution, step, own_layout, memory).run();
}

Status run_batch(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  const SourceTable own = write_table(execution, step);
  announce(execution, step.phase, payload_bytes(step, own));
  SHARDCOMM_TRY(fabric.collect(execution.limit));
  bool any_staged = own.staged;
  for (Rank r = 0; r < fabric.size(); ++r) {
    any_staged = any_staged || (r != fabric.rank() && read_table(fabric, step, r).staged);
  }
  if (any_staged) {
    SHARDCOMM_TRY(run_staged(execution, step, own.staged));
  } else {
    SHARDCOMM_TRY(step.geometry.reduces() ? reduce(execution, step, own.layout) : gather(execution, step, own.layout));
  }
  fabric.finish_reading();
  return step.last ? fabric.await_readers(execution.limit) : Status();
}

// Null: of a call that is not known, or whose items take several announcements.
Placement* placement_of(const Operation& operation) {
  if (operation.known == nullptr || operation.items.size() > kMaxEntries) return nullptr;
  if (operation.known->placement == nullptr) operation.known->placement = std::make_shared<Placement>();
  return operation.known->placement.get();
}

}  // namespace

Status run_direct(Execution& execution, const Step& step) {
  for (size_t first = 0;;) {
    const size_t count = std::min(kMaxEntries, step.items.size() - first);
    const bool more = first + count < step.items.size();
    SHARDCOMM_TRY(run_batch(execution, Step{step.geometry, step.items.subspan(first, count), step.phase,
                                            step.last || more, placement_of(execution.operation)}));
    if (!more) break;
    first += count;
  }
  count_traffic(execution, step);
  return {};
}

}  // namespace shardcomm
