// Gradients: whole ones, into which a unit's backward pass adds, and the f32 sums over all ranks that they are reduced
// into. Whole gradients lie in a window, because peers read them; at stages 2 and 3 they are borrowed from a pool while
// a unit is in flight. At stages 0 and 1, f32 gradients are reduced in place: the owned part of the whole is the sum.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "zero/buffer.h"
#include "zero/context.h"
#include "zero/footprint.h"
#include "zero/pool.h"
#include "zero/recurring_call.h"

namespace shardcomm::zero {

// Thread rule: that of the engine.
class Gradients {
 public:
  // Collective. pool_capacity: bytes of the pool before it grows (stages 2 and 3).
  static Result<std::unique_ptr<Gradients>> create(const Context& context, size_t pool_capacity);
  ~Gradients();

  // Whole gradients are zeros once `compute` gets here. `offset`: where they lie in the pool, if it has a place for
  // them (stages 2 and 3).
  Status open(UnitId unit, std::optional<size_t> offset, StreamRef compute);
  // Adds those of one transfer, summed over ranks, to the sums, after what `compute` has been given so far.
  Status reduce(UnitId unit, uint32_t transfer, StreamRef compute);
  // Gives the memory of one transfer back.
  void retire(UnitId unit, uint32_t transfer);
  Status discard(UnitId unit, StreamRef compute);
  // Until every reduction that has been enqueued has run.
  Status synchronize(Deadline deadline) const;
  // Every sum becomes zero. Only while no reduction is in flight, and no compute stream adds to whole gradients.
  Status zero();

  // Returns null if the bucket is frozen. Stages 2 and 3: valid while the unit's gradients are open or in flight.
  std::byte* whole(UnitId unit, const UnitBucket& bucket) const noexcept;
  // [owned_count] elements; null for frozen buckets.
  float* sum(UnitId unit, uint32_t bucket) const noexcept;

 private:
  struct Part {           // of the unit's state, for one transfer
    Block borrowed;       // stages 2 and 3
    bool summed = false;  // the sums hold earlier micro-batches
    std::optional<Event> reduced;
    RecurringCall reduction, straight_reduction, spread;
  };
  struct Unit {
    std::byte* whole = nullptr;  // stages 0 and 1: always the same; stages 2 and 3: borrowed
    std::vector<Part> parts;
    bool zeros = true;     // stages 0 and 1: nothing has been added to the whole ones
    bool carried = false;  // carry_ holds earlier micro-batches: the whole gradients are open in the place of the sums
  };
  Gradients(const Context& context, Window window, Buffer sums);

  Status borrow(UnitId unit, std::optional<size_t> offset, StreamRef compute);
  Status carry_sums(UnitId unit, StreamRef compute);
  Status enqueue_collectives(UnitId unit, uint32_t transfer, bool straight);
  Status enqueue_sums(UnitId unit, uint32_t transfer, bool straight);
  std::byte* own_part(UnitId unit, const UnitBucket& bucket) const noexcept;

  const Context& context_;
  const bool in_place_;  // sums_in_place
  Window window_;
  Buffer sums_;
  Buffer carry_;  // allocated when a second micro-batch is reduced in place
  const BucketOffsets offsets_;
  Pool pool_;
  std::vector<Unit> units_;
};

}  // namespace shardcomm::zero
