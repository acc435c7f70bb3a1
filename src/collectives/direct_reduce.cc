#include "collectives/direct_reduce.h"

#include <algorithm>
#include <span>

#include "collectives/call_tables.h"
#include "collectives/direct_source.h"
#include "collectives/scratch_buffers.h"
#include "collectives/team_parts.h"

namespace shardcomm {
namespace {

// The reductions of one step, into this rank's shares.
class DirectReduce {
 public:
  DirectReduce(Execution& execution, const Step& step, uint64_t own_fingerprint)
      : execution_(execution),
        fabric_(execution.fabric),
        step_(step),
        buffers_(execution.scratch.buffers()),
        order_(step.geometry.items(execution.fabric.rank, execution.fabric.rank, step.items.size()), execution.fabric),
        route_(step.geometry.route(execution.fabric.rank, execution.fabric.rank)) {
    buffers_.sources.clear();
    for (Rank r = 0; r < fabric_.size; ++r) {
      buffers_.sources.emplace_back(fabric_, step_, r, own_fingerprint);
    }
  }

  bool all_match() const noexcept { return std::ranges::all_of(buffers_.sources, &Source::matches); }

  // Reduces sources that match, by a table that is kept with the call: found once, then only launched.
  Status run_kept(ReduceRows& rows) {
    if (rows.is_empty()) {
      rows.reset(order_.size(), size());
      for (size_t k = 0; k < order_.size(); ++k) {
        const size_t i = order_[k];
        if (share_bytes(i) == 0) continue;
        (void)find_mapped(i, rows.next());  // at all sources, since they match
        add_row(rows, i);
      }
    }
    return rows.launch(execution_);
  }

  // Reduces any sources. What is mapped at all of them is launched a batch of rows at a time; the rest is done at once.
  Status run_in_batches(ReduceRows& rows) {
    rows.reset(std::min(kBatchRows, order_.size()), size());
    for (size_t k = 0; k < order_.size(); ++k) {
      const size_t i = order_[k];
      if (share_bytes(i) == 0) continue;
      if (rows.is_full()) {
        SHARDCOMM_TRY(rows.launch(execution_));
        rows.clear();
      }
      if (find_mapped(i, rows.next())) {
        add_row(rows, i);
      } else {
        SHARDCOMM_TRY(reduce_attached(i));
      }
    }
    return rows.launch(execution_);
  }

 private:
  size_t size() const noexcept { return static_cast<size_t>(fabric_.size); }

  size_t share_bytes(size_t i) const noexcept { return route_.bytes(step_.items[i]); }

  // Finds where this rank's share of item i begins at source k.
  Location locate_share(size_t i, size_t k) const noexcept {
    const Item& item = step_.items[i];
    return locate(execution_, buffers_.sources[k], i, item.in).plus(route_.source_offset_bytes(item));
  }
  // Fills in where this rank's share of item i is mapped, by source. Returns whether it is mapped at all of them.
  bool find_mapped(size_t i, std::span<const void*> addresses) const noexcept {
    bool all_mapped = true;
    for (size_t k = 0; k < size(); ++k) {
      addresses[k] = locate_share(i, k).mapped;
      all_mapped = all_mapped && addresses[k] != nullptr;
    }
    return all_mapped;
  }
  void add_row(ReduceRows& rows, size_t i) const {
    rows.add(step_.items[i], share_bytes(i) / size_of(step_.items[i].dtype));
  }

  // Reduces a share that is not mapped at every source, its parts on several threads where they are large.
  Status reduce_attached(size_t i) {
    const size_t bytes = share_bytes(i);
    const auto parts = static_cast<size_t>(execution_.team.parts_for(bytes));
    const size_t piece_bytes =
        std::min(execution_.attach_chunk_bytes, (bytes / parts / kPartAlignBytes + 1) * kPartAlignBytes);
    buffers_.locations.clear();
    for (size_t k = 0; k < size(); ++k) buffers_.locations.push_back(locate_share(i, k));
    buffers_.pieces.resize(std::max(buffers_.pieces.size(), parts * size() * piece_bytes));
    buffers_.piece_sources.resize(std::max(buffers_.piece_sources.size(), parts * size()));
    return in_parts(execution_.team, bytes, [&](size_t part, size_t begin, size_t end) {
      return reduce_part(step_.items[i], {.part = part, .begin = begin, .end = end, .piece_bytes = piece_bytes});
    });
  }

  // A range of a share, in bytes.
  struct Part {
    size_t part, begin, end;
    size_t piece_bytes;  // attached and combined at a time
  };
  // Goes piece after piece, so that what has been attached is still in the caches when it is combined.
  Status reduce_part(const Item& item, const Part& range) {
    std::byte* const pieces = buffers_.pieces.data() + range.part * size() * range.piece_bytes;
    const std::span<const void*> sources(buffers_.piece_sources.data() + range.part * size(), size());
    for (size_t offset = range.begin; offset < range.end; offset += range.piece_bytes) {
      const size_t bytes = std::min(range.piece_bytes, range.end - offset);
      for (size_t k = 0; k < size(); ++k) {
        const Location from = buffers_.locations[k].plus(offset);
        sources[k] = from.mapped;
        if (from.mapped != nullptr) continue;
        std::byte* const piece = pieces + k * range.piece_bytes;
        SHARDCOMM_TRY(read_attached(fabric_, static_cast<Rank>(k), {piece, bytes}, from.address));
        sources[k] = piece;
      }
      const ReduceRun run{.item = item, .offset_bytes = offset, .bytes = bytes, .sources = sources};
      SHARDCOMM_TRY(reduce_run(execution_, run));
    }
    return {};
  }

  Execution& execution_;
  Fabric& fabric_;
  const Step& step_;
  Scratch::Buffers& buffers_;
  const ItemOrder order_;
  const Route route_;  // from any source
};

}  // namespace

Status reduce_direct(Execution& execution, const Step& step, uint64_t own_fingerprint) {
  DirectReduce reduction(execution, step, own_fingerprint);
  CallTables* const kept = reduction.all_match() ? kept_tables(step) : nullptr;
  return kept != nullptr ? reduction.run_kept(kept->reduction)
                         : reduction.run_in_batches(execution.scratch.buffers().reductions);
}

}  // namespace shardcomm
