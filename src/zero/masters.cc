#include "zero/masters.h"

#include "kernels/kernels.h"

namespace shardcomm::zero {

Masters::Masters(const Context& context, const Values& values, Buffer memory)
    : context_(&context), values_(&values), memory_(std::move(memory)), offsets_(master_offsets(context.layout)) {
  context.account.add(Purpose::kOptimizer, memory_.size_bytes());
}

Masters::~Masters() = default;

Result<Masters> Masters::create(const Context& context, const Values& values) {
  SHARDCOMM_TRY_ASSIGN(Buffer memory, Buffer::create(footprint_of(context.layout).master_bytes, "f32 masters"));
  return Masters(context, values, std::move(memory));
}

float* Masters::of(UnitId unit, uint32_t bucket) const noexcept {
  const UnitBucket& layout = context_->layout.units[unit].buckets[bucket];
  if (layout.dtype != DType::kBF16 || !layout.trainable) return nullptr;
  return memory_.floats() + offsets_[unit][bucket];
}

Status Masters::round(UnitId unit) const {
  const auto& buckets = context_->layout.units[unit].buckets;
  for (uint32_t b = 0; b < buckets.size(); ++b) {
    const float* masters = of(unit, b);
    if (masters == nullptr) continue;
    const kernels::CastLaunch cast{.source = masters,
                                   .source_dtype = DType::kF32,
                                   .target = values_->owned(unit, buckets[b]),
                                   .target_dtype = DType::kBF16,
                                   .count = owned_count(buckets[b], context_->layout.stage)};
    SHARDCOMM_TRY(kernels::launch(cast, StreamRef::caller()));
  }
  return {};
}

}  // namespace shardcomm::zero
