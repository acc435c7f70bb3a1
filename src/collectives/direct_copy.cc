#include "collectives/direct_copy.h"

#include <vector>

#include "collectives/call_tables.h"
#include "collectives/direct_source.h"
#include "collectives/scratch_buffers.h"
#include "collectives/team_parts.h"
#include "kernels/kernels.h"

namespace shardcomm {
namespace {

using Rows = std::vector<kernels::CopySegment>;

// The copies of one step from one source.
class CopyFrom {
 public:
  CopyFrom(Execution& execution, const Step& step, const Source& source) noexcept
      : execution_(execution),
        step_(step),
        source_(source),
        order_(step.geometry.items(source.rank, execution.fabric.rank, step.items.size()), execution.fabric),
        route_(step.geometry.route(source.rank, execution.fabric.rank)),
        own_route_(step.geometry.route(execution.fabric.rank, execution.fabric.rank)),
        gathers_(step.geometry.pattern() == Pattern::kGather) {}

  // Copies from a source that matches, by a table that is kept with the call: found once, then only launched.
  Status run_kept(Rows& rows) {
    if (rows.empty()) {
      rows.reserve(order_.size());
      for (size_t k = 0; k < order_.size(); ++k) {
        const Copy copy = find(order_[k]);
        if (copy.bytes != 0) rows.push_back(row_of(copy));
      }
    }
    return launch(rows);
  }

  // Copies from any source. What is mapped is launched a batch of rows at a time; the rest is attached at once.
  Status run_in_batches(Rows& rows) {
    rows.clear();
    rows.reserve(kBatchRows);
    for (size_t k = 0; k < order_.size(); ++k) {
      const Copy copy = find(order_[k]);
      if (copy.bytes == 0) continue;
      if (copy.from.mapped == nullptr) {
        SHARDCOMM_TRY(attach(copy));
        continue;
      }
      if (rows.size() == kBatchRows) {
        SHARDCOMM_TRY(launch(rows));
        rows.clear();
      }
      rows.push_back(row_of(copy));
    }
    return launch(rows);
  }

 private:
  // The copy of one item. If it has no bytes, nothing is copied.
  struct Copy {
    std::byte* target;
    Location from;
    size_t bytes;
  };

  Copy find(size_t i) const noexcept {
    const Item& item = step_.items[i];
    const size_t bytes = route_.bytes(item);
    if (bytes == 0) return {};
    std::byte* const target = route_.target(item);
    // A shard that is gathered in place has its own place in the buffer at every rank: its source's is the target's.
    const bool in_place = gathers_ && item.in == own_route_.target(item);
    const Location begin = locate(execution_, source_, i, in_place ? target : item.in);
    return {target, begin.plus(route_.source_offset_bytes(item)), bytes};
  }

  static kernels::CopySegment row_of(const Copy& copy) noexcept {
    return {.target = copy.target, .source = copy.from.mapped, .bytes = copy.bytes};
  }

  Status launch(const Rows& rows) const {
    return kernels::launch(
        kernels::CopySegmentsLaunch{.segments = rows, .traffic_bytes = execution_.node_bytes, .team = &execution_.team},
        execution_.stream);
  }

  Status attach(const Copy& copy) const {
    return in_parts(execution_.team, copy.bytes, [&](size_t, size_t begin, size_t end) {
      return read_attached(execution_.fabric, source_.rank, {copy.target + begin, end - begin},
                           copy.from.address + begin);
    });
  }

  Execution& execution_;
  const Step& step_;
  const Source& source_;
  const ItemOrder order_;
  const Route route_, own_route_;
  const bool gathers_;
};

}  // namespace

Status copy_from(Execution& execution, const Step& step, Rank source, uint64_t own_fingerprint) {
  const Source from(execution.fabric, step, source, own_fingerprint);
  CopyFrom copy(execution, step, from);
  CallTables* const kept = from.matches ? kept_tables(step) : nullptr;
  return kept != nullptr ? copy.run_kept(kept->copies[static_cast<size_t>(source)])
                         : copy.run_in_batches(execution.scratch.buffers().copies);
}

// Each rank has an order of its own, so that at any moment the ranks read different sources.
Status copy_direct(Execution& execution, const Step& step, uint64_t own_fingerprint) {
  for (const Rank source : execution.reading_order) {
    if (!step.geometry.reads(source, execution.fabric.rank)) continue;
    SHARDCOMM_TRY(copy_from(execution, step, source, own_fingerprint));
  }
  return {};
}

}  // namespace shardcomm
