// Parameter values: this rank's shards in a window that peers read directly (stage 3), with whole units gathered into a
// pool, or in mosaic windows, in which whole units are there without a gather; or whole values in the window, of which
// the own shard is a part (stages 0 to 2).
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "zero/buffer.h"
#include "zero/context.h"
#include "zero/pool.h"
#include "zero/recurring_call.h"

namespace shardcomm::zero {

// Thread rule: that of the engine.
class Values {
 public:
  // Collective. gathered_capacity: bytes in which the schedule places gathered units.
  static Result<std::unique_ptr<Values>> create(const Context& context, size_t gathered_capacity);

  // Stage 3. `offset`: where the unit's whole values lie in the pool, if it has a place for them. `last_use`: of the
  // whole values by the compute stream, if it used them.
  Status gather(UnitId unit, uint32_t transfer, std::optional<size_t> offset);
  Status free(UnitId unit, const std::optional<Event>& last_use);
  // Stages 1 and 2: gives the peers this rank's new values and takes theirs.
  Status publish(UnitId unit);
  // Stage 3: all that was enqueued here so far has read its mosaics, on all ranks, before what is enqueued later.
  Status finish_reading();
  // What `compute` runs from here on sees whole values.
  Status join(UnitId unit, StreamRef compute);
  bool arriving(UnitId unit) const noexcept { return !units_[unit].ready.done(); }

  // Whole values of a bucket: while gathered (stage 3), always (stages 0 to 2).
  std::byte* whole(UnitId unit, const UnitBucket& bucket) const noexcept;
  // This rank's shard of it.
  std::byte* shard(UnitId unit, const UnitBucket& bucket) const noexcept;
  // [owned_count] elements: what this rank optimizes of it.
  std::byte* owned(UnitId unit, const UnitBucket& bucket) const noexcept;

  void trim() { pool_.trim(); }

 private:
  struct Unit {
    std::byte* base = nullptr;      // in the window: of its shards (stage 3), of its whole values (stages 0 to 2)
    std::byte* gathered = nullptr;  // its whole values (stage 3)
    std::vector<Block> blocks;      // their memory: one block per transfer if they were placed, else one
    Work ready;
    std::vector<std::optional<MosaicWindow>> mosaics;  // by bucket
    std::vector<RecurringCall> gathers, publishes;     // by transfer
  };
  Values(const Context& context, Window window, Buffer memory);
  Status allocate_mosaics();
  std::vector<GatherItem> gather_items(UnitId unit, std::span<const UnitBucket* const> buckets) const;
  Status acquire(UnitId unit, const Transfer& transfer, std::optional<size_t> offset);

  const MosaicWindow& mosaic_of(UnitId unit, const UnitBucket& bucket) const noexcept;  // bucket: of the layout

  const Context& context_;
  bool has_mosaics_ = false;
  Window window_;
  Buffer memory_;
  Pool pool_;
  std::vector<Unit> units_;
};

}  // namespace shardcomm::zero
