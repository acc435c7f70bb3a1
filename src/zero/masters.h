// The f32 masters of the bf16 parameters that this rank optimizes. They belong to the engine, so that fill_parameters
// sets them exactly, whether an optimizer exists yet or not.
#pragma once
#include "zero/buffer.h"
#include "zero/context.h"
#include "zero/footprint.h"
#include "zero/values.h"

namespace shardcomm::zero {

// Thread rule: that of the engine.
class Masters {
 public:
  // Local. `context` and `values` must outlive it.
  static Result<Masters> create(const Context& context, const Values& values);
  Masters(Masters&&) noexcept = default;
  ~Masters();

  // [owned_count] elements; null where the values are their own masters (f32) or have none (frozen).
  float* of(UnitId unit, uint32_t bucket) const noexcept;
  // Makes a unit's bf16 values of its masters, before it returns.
  Status round(UnitId unit) const;

 private:
  Masters(const Context& context, const Values& values, Buffer memory);

  const Context* context_;
  const Values* values_;
  Buffer memory_;
  BucketOffsets offsets_;
};

}  // namespace shardcomm::zero
