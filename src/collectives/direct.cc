// The large-message engine: every rank reads its peers' memory where it lies, so each byte is copied once. Gathers are
// n − 1 reads of a shard; reductions read all n sources in rank order and write once, so that there is one rounding and
// the bits depend on nothing but the inputs.
#include <fmt/format.h>

#include <array>
#include <utility>
#include <vector>

#include "collectives/engine.h"
#include "collectives/source_table.h"
#include "kernels/kernels.h"

namespace shardcomm {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kTableRows = 64;  // of the tables that kernels get: their cost is spread, and they stay in the caches

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

}  // namespace

Status copy_from(Execution& execution, const Step& step, Rank source, uint64_t own_layout) {
  Fabric& fabric = execution.fabric;
  const bool own = source == fabric.rank();
  const SourceTable offered = own ? SourceTable() : read_table(fabric, step, source);
  const bool alike = offered.is_like(own_layout);
  std::array<kernels::CopySegment, kTableRows> table;
  size_t rows = 0;
  const auto copy = [&] {
    const std::span<const kernels::CopySegment> segments(table.data(), std::exchange(rows, 0));
    return kernels::launch(kernels::CopySegmentsLaunch{segments, execution.footprint_bytes, &execution.team},
                           StreamRef::caller());
  };
  const Route route = step.geometry.route(source, fabric.rank()),
              own_route = step.geometry.route(fabric.rank(), fabric.rank());
  const bool gathers = step.geometry.pattern() == Pattern::kGather;
  // What lies there where `at` lies here.
  const auto counterpart = [&](const std::byte* at) {
    return execution.sources.window_of(at, 1)->counterpart(source, at);
  };
  for (size_t i = 0; i < step.items.size(); ++i) {
    const Item& item = step.items[i];
    const size_t bytes = route.bytes(item), offset_bytes = route.offset_bytes(item);
    if (bytes == 0) continue;
    std::byte* const target = route.place(item);
    const std::byte* base = item.in;
    if (alike) {
      const bool in_place = gathers && item.in == own_route.place(item);  // then so is the source's, in its own place
      base = counterpart(in_place ? target : item.in);
    } else if (!own) {
      base = execution.sources.map(source, offered.entries[i]);
    }
    if (base != nullptr) {
      if (rows == kTableRows) SHARDCOMM_TRY(copy());
      table[rows++] = {target, base + offset_bytes, bytes};
    } else if (fabric.attach() != Attach::kNever) {
      const uint64_t address = offered.entries[i].address + offset_bytes;
      const auto read = [&](size_t, size_t begin, size_t end) {
        return fabric.read(source, target + begin, address + begin, end - begin);
      };
      SHARDCOMM_TRY(in_parts(execution.team, bytes, read));
    } else {
      return unreadable(source);
    }
  }
  return copy();
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
  std::vector<kernels::ReduceSegment> segments;
  std::vector<const void*> sources;   // by segment, then by rank
  std::vector<std::byte> pieces;      // of attached sources, by part of the share, then by rank
  std::vector<const void*> attached;  // what a part combines: a piece, or where it is mapped
};

class DirectReduce {
 public:
  DirectReduce(Execution& execution, const Step& step, uint64_t own_layout, ReduceMemory& memory)
      : execution_(execution), fabric_(execution.fabric), step_(step), memory_(memory), all_alike_(own_layout != 0) {
    memory.tables.resize(size());
    memory.segments.clear();
    memory.sources.resize(std::min(kTableRows, step.items.size()) * size());
    for (Rank r = 0; r < fabric_.size(); ++r) {
      if (r == fabric_.rank()) continue;
      SourceTable& table = memory.tables[static_cast<size_t>(r)] = read_table(fabric_, step, r);
      all_alike_ = all_alike_ && table.is_like(own_layout);
    }
  }

  Status run() {
    const Route route = step_.geometry.route(fabric_.rank(), fabric_.rank());  // the same from every source
    for (size_t i = 0; i < step_.items.size(); ++i) {
      const Item& item = step_.items[i];
      const Share share{route.offset_bytes(item), route.bytes(item)};
      if (share.bytes == 0) continue;
      const bool fits = memory_.segments.size() < kTableRows && item.dtype == dtype_ && item.op == op_;
      if (!fits) SHARDCOMM_TRY(flush());
      dtype_ = item.dtype;
      op_ = item.op;
      const void** const sources = memory_.sources.data() + memory_.segments.size() * size();
      if (find_sources(i, share.offset_bytes, sources)) {
        memory_.segments.push_back({item.out, sources, share.bytes / size_of(item.dtype)});
      } else {
        SHARDCOMM_TRY(reduce_attached(i, share, {sources, size()}));
      }
    }
    return flush();
  }

 private:
  struct Share {  // of an item
    size_t offset_bytes, bytes;
  };
  size_t size() const noexcept { return static_cast<size_t>(fabric_.size()); }

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

  Status flush() {
    const kernels::ReduceSegmentsLaunch table{memory_.segments,           size(),          dtype_, op_,
                                              execution_.footprint_bytes, &execution_.team};
    if (!memory_.segments.empty()) SHARDCOMM_TRY(kernels::launch(table, StreamRef::caller()));
    memory_.segments.clear();
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
  DType dtype_{};   // of the segments
  ReduceOp op_{};
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

}  // namespace

Status run_direct(Execution& execution, const Step& step) {
  for (size_t first = 0;;) {
    const size_t count = std::min(kMaxEntries, step.items.size() - first);
    const bool more = first + count < step.items.size();
    SHARDCOMM_TRY(
        run_batch(execution, Step{step.geometry, step.items.subspan(first, count), step.phase, step.last || more}));
    if (!more) break;
    first += count;
  }
  count_traffic(execution, step);
  return {};
}

}  // namespace shardcomm
