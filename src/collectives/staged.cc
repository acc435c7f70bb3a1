// Ordinary memory that peers do not read themselves: its owner copies it through a ring in its control block, chunk by
// chunk, and every reader takes each chunk and hands the slot back. All ranks go through the same steps; step s stages
// chunk s and takes chunk s − kAhead. Staging chunk s waits until the peers have taken chunk s − kStagingSlots, in
// their step s − kStagingSlots + kAhead: all waits are for earlier steps, so no circle of them can close.
#include <cstring>
#include <vector>

#include "collectives/direct_copy.h"
#include "collectives/engine.h"
#include "collectives/source_table.h"
#include "collectives/transfer_cursor.h"
#include "kernels/kernels.h"

namespace shardcomm {
namespace {

// A slot holds one chunk for everybody, or one part per reader.
size_t part_bytes(const Fabric& fabric, const Geometry& geometry) {
  const size_t slot = fabric.staging->slot_bytes();
  if (geometry.same_for_all()) return slot;
  return slot / static_cast<size_t>(fabric.size) / kItemAlign * kItemAlign;
}

uint64_t chunks_to(const Step& step, Rank source, Rank reader, size_t part) {
  TransferCursor cursor(step.geometry, step.items, source, reader);
  TransferCursor::Run run;
  uint64_t chunks = 0;
  while (cursor.next_chunk(part)) {
    while (cursor.next_run(run)) {
    }
    ++chunks;
  }
  return chunks;
}

// Chunks that `source` puts through its ring: as many as its neediest reader takes. Reductions go through their own
// share chunk by chunk, too.
uint64_t chunks_of(const Step& step, Rank source, size_t part) {
  const Geometry& geometry = step.geometry;
  if (geometry.same_for_all()) return chunks_to(step, source, geometry.reader_of(source), part);
  uint64_t most = 0;
  for (Rank reader = 0; reader < geometry.size(); ++reader) {
    if (reader == source && !geometry.reduces()) continue;
    most = std::max(most, chunks_to(step, source, reader, part));
  }
  return most;
}

class StagedRun {
 public:
  StagedRun(Execution& execution, const Step& step, bool own_staged)
      : execution_(execution), fabric_(execution.fabric), step_(step), part_(part_bytes(fabric_, step.geometry)) {
    const Rank me = fabric_.rank;
    for (Rank r = 0; r < fabric_.size; ++r) {
      const bool staged = r == me ? own_staged : read_table(fabric_, step, r).staged;
      chunks_.push_back(staged ? chunks_of(step, r, part_) : 0);
      staged_.push_back(staged);
      most_chunks_ = std::max(most_chunks_, chunks_.back());
      in_.emplace_back(step.geometry, step.items, r, me);
      out_.emplace_back(step.geometry, step.items, me, r);
    }
  }

  Status run() {
    const uint64_t own = chunks_[static_cast<size_t>(fabric_.rank)];
    release_unread();
    for (uint64_t s = 0; s < most_chunks_ + kAhead; ++s) {
      if (s < own) SHARDCOMM_TRY(stage(s));
      if (s < kAhead) continue;
      SHARDCOMM_TRY(step_.geometry.reduces() ? reduce(s - kAhead) : gather(s - kAhead));
    }
    if (!step_.geometry.reduces()) SHARDCOMM_TRY(gather_unstaged());
    fabric_.staging->finish(own);
    return {};
  }

 private:
  // Half the ring: ranks may be that many chunks apart before one waits for another.
  static constexpr uint64_t kAhead = kStagingSlots / 2;

  // A rank that reads nothing of a source gives all slots of its ring back at once, so that nobody waits for it.
  void release_unread() {
    for (Rank r = 0; r < fabric_.size; ++r) {
      if (r == fabric_.rank || step_.geometry.reads(r, fabric_.rank)) continue;
      uint64_t& chunks = chunks_[static_cast<size_t>(r)];
      if (chunks != 0) fabric_.staging->release(r, chunks - 1);
      chunks = 0;
    }
  }

  // This rank's chunk, for whoever reads it.
  Status stage(uint64_t chunk) {
    SHARDCOMM_TRY_ASSIGN(std::byte * slot, fabric_.staging->slot(chunk, execution_.limit));
    const Rank me = fabric_.rank;
    if (step_.geometry.same_for_all()) {
      const Rank reader = step_.geometry.reader_of(me);
      fill(slot, out_[static_cast<size_t>(reader)], reader);
    } else {
      for (Rank reader = 0; reader < fabric_.size; ++reader) {
        if (reader != me) fill(slot + static_cast<size_t>(reader) * part_, out_[static_cast<size_t>(reader)], reader);
      }
    }
    fabric_.staging->publish(chunk);
    return {};
  }

  void fill(std::byte* target, TransferCursor& cursor, Rank reader) {
    if (!cursor.next_chunk(part_)) return;
    const Route route = step_.geometry.route(fabric_.rank, reader);
    for (TransferCursor::Run run; cursor.next_run(run);) {
      const Item& item = step_.items[run.item];
      std::memcpy(target + run.position_bytes, item.in + route.source_offset_bytes(item) + run.offset_bytes, run.bytes);
    }
  }

  const std::byte* own_part(const std::byte* slot) const {
    return step_.geometry.same_for_all() ? slot : slot + static_cast<size_t>(fabric_.rank) * part_;
  }

  Status gather(uint64_t chunk) {
    for (const Rank source : execution_.reading_order.subspan(1)) {
      const auto k = static_cast<size_t>(source);
      if (!staged_[k] || chunk >= chunks_[k]) continue;
      SHARDCOMM_TRY_ASSIGN(const std::byte* slot, fabric_.staging->take(source, chunk, execution_.limit));
      if (in_[k].next_chunk(part_)) {
        const Route route = step_.geometry.route(source, fabric_.rank);
        for (TransferCursor::Run run; in_[k].next_run(run);) {
          std::byte* target = route.target(step_.items[run.item]) + run.offset_bytes;
          const std::byte* from = own_part(slot) + run.position_bytes;
          const kernels::CopyLaunch copy{
              .target = target, .source = from, .bytes = run.bytes, .traffic_bytes = execution_.node_bytes};
          SHARDCOMM_TRY(kernels::launch(copy, execution_.stream));
        }
      }
      fabric_.staging->release(source, chunk);
    }
    return {};
  }

  Status gather_unstaged() {
    for (const Rank source : execution_.reading_order) {
      const bool in_place = source == fabric_.rank || !staged_[static_cast<size_t>(source)];
      if (in_place && step_.geometry.reads(source, fabric_.rank)) {
        SHARDCOMM_TRY(copy_from(execution_, step_, source, /*own_fingerprint=*/0));
      }
    }
    return {};
  }

  // A rank that takes nothing itself still hands back the slots that others need; so it walks all chunks.
  Status reduce(uint64_t chunk) {
    SHARDCOMM_TRY(open_slots(chunk));
    SHARDCOMM_TRY(reduce_runs(in_[static_cast<size_t>(fabric_.rank)]));
    for (Rank r = 0; r < fabric_.size; ++r) {
      const auto k = static_cast<size_t>(r);
      if (r != fabric_.rank && staged_[k] && chunk < chunks_[k]) fabric_.staging->release(r, chunk);
    }
    return {};
  }

  Status open_slots(uint64_t chunk) {
    slots_.assign(staged_.size(), nullptr);
    for (Rank r = 0; r < fabric_.size; ++r) {
      const auto k = static_cast<size_t>(r);
      if (r == fabric_.rank || !staged_[k] || chunk >= chunks_[k]) continue;
      SHARDCOMM_TRY_ASSIGN(slots_[k], fabric_.staging->take(r, chunk, execution_.limit));
    }
    return {};
  }

  Status reduce_runs(TransferCursor& cursor) {
    if (!cursor.next_chunk(part_)) return {};
    std::vector<const void*> sources(staged_.size());
    for (TransferCursor::Run run; cursor.next_run(run);) {
      const Item& item = step_.items[run.item];
      scratch_.resize(std::max(scratch_.size(), part_ * sources.size()));
      for (Rank r = 0; r < fabric_.size; ++r) {
        SHARDCOMM_TRY_ASSIGN(sources[static_cast<size_t>(r)], source_of(r, run));
      }
      const ReduceRun reduction{.item = item, .offset_bytes = run.offset_bytes, .bytes = run.bytes, .sources = sources};
      SHARDCOMM_TRY(reduce_run(execution_, reduction));
    }
    return {};
  }

  Result<const void*> source_of(Rank r, const TransferCursor::Run& run) {
    const auto k = static_cast<size_t>(r);
    const Item& item = step_.items[run.item];
    const size_t offset = step_.geometry.route(r, fabric_.rank).source_offset_bytes(item) + run.offset_bytes;
    if (r == fabric_.rank) return static_cast<const void*>(item.in + offset);
    if (staged_[k]) return static_cast<const void*>(own_part(slots_[k]) + run.position_bytes);
    const SourceEntry& entry = read_table(fabric_, step_, r).entries[run.item];
    if (const std::byte* mapped = execution_.sources.locate(r, entry); mapped != nullptr)
      return static_cast<const void*>(mapped + offset);
    std::byte* piece = scratch_.data() + k * part_;
    SHARDCOMM_TRY(fabric_.read(r, piece, entry.address + offset, run.bytes));
    return static_cast<const void*>(piece);
  }

  Execution& execution_;
  Fabric& fabric_;
  const Step& step_;
  size_t part_;
  uint64_t most_chunks_ = 0;
  std::vector<uint64_t> chunks_;          // by source
  std::vector<bool> staged_;              // by source
  std::vector<TransferCursor> in_, out_;  // by source: what this rank takes; by reader: what it gives
  std::vector<const std::byte*> slots_;
  std::vector<std::byte> scratch_;
};

}  // namespace

Status run_staged(Execution& execution, const Step& step, bool own_staged) {
  return StagedRun(execution, step, own_staged).run();
}

}  // namespace shardcomm
