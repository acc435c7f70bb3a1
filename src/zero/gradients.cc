#include "zero/gradients.h"

#include "kernels/kernels.h"

namespace shardcomm::zero {
namespace {

Pool::Grow grow_windows(const Context& context) {
  return [&context](size_t bytes) -> Result<Pool::Extra> {
    SHARDCOMM_TRY_ASSIGN(Window window, context.comm.allocate_window(bytes, "zero gradients"));
    auto owner = std::make_shared<Window>(std::move(window));
    return Pool::Extra{owner->data(), owner};
  };
}

}  // namespace

Gradients::Gradients(const Context& context, Window window, Buffer sums)
    : context_(context),
      in_place_(sums_in_place(context.layout)),
      window_(std::move(window)),
      sums_(std::move(sums)),
      offsets_(trainable_offsets(context.layout)),
      arena_(context.layout.stage.shards_gradients ? window_.size_bytes() : 0),
      pool_(window_.data(), Purpose::kUnreduced, context.account, grow_windows(context)),
      units_(context.layout.units.size()) {
  if (context.layout.stage.shards_gradients) return;
  std::byte* base = window_.data();
  for (size_t u = 0; u < units_.size(); ++u) {
    units_[u].permanent = base;
    base += context.layout.units[u].gradient_bytes;
  }
}

Result<std::unique_ptr<Gradients>> Gradients::create(const Context& context, size_t pool_capacity) {
  const Footprint fixed = footprint_of(context.layout);
  const size_t window_bytes = context.layout.stage.shards_gradients ? pool_capacity : fixed.whole_gradient_bytes;
  SHARDCOMM_TRY_ASSIGN(Window window,
                       context.comm.allocate_window(std::max(window_bytes, kAlignBytes), "zero gradients"));
  SHARDCOMM_TRY_ASSIGN(Buffer sums, Buffer::create(fixed.sum_bytes, "sums of gradients"));
  context.account.add(Purpose::kGradients, fixed.whole_gradient_bytes + fixed.sum_bytes);
  return std::unique_ptr<Gradients>(new Gradients(context, std::move(window), std::move(sums)));
}

Gradients::~Gradients() = default;

Status Gradients::open(UnitId unit, StreamRef compute) {
  Unit& state = units_[unit];
  const size_t bytes = context_.layout.units[unit].gradient_bytes;
  if (context_.layout.stage.shards_gradients) {
    state.offset = arena_.allocate(bytes);
    SHARDCOMM_TRY_ASSIGN(state.borrowed, pool_.acquire(state.offset, bytes, compute));
    return kernels::launch(kernels::FillLaunch{.target = state.borrowed.data, .bytes = bytes}, compute);
  }
  if (state.reduced) SHARDCOMM_TRY(compute.wait(*state.reduced));
  if (in_place_ && state.summed) SHARDCOMM_TRY(carry_sums(unit, compute));
  if (std::exchange(state.zeros, false)) return {};
  return kernels::launch(kernels::FillLaunch{.target = state.permanent, .bytes = bytes}, compute);
}

// The whole gradients are about to be zeroed, and the sums are part of them.
Status Gradients::carry_sums(UnitId unit, StreamRef compute) {
  Unit& state = units_[unit];
  if (carry_.size_bytes() == 0) {
    const size_t bytes = owned_trainable_count(context_.layout) * sizeof(float);
    SHARDCOMM_TRY_ASSIGN(carry_, Buffer::create(bytes, "gradients of earlier micro-batches"));
    context_.account.add(Purpose::kGradients, bytes);
  }
  const auto& buckets = context_.layout.units[unit].buckets;
  for (uint32_t b = 0; b < buckets.size(); ++b) {
    if (!buckets[b].trainable) continue;
    const kernels::CastLaunch copy{.source = sum(unit, b),
                                   .source_dtype = DType::kF32,
                                   .target = carry_.floats() + offsets_[unit][b],
                                   .target_dtype = DType::kF32,
                                   .count = owned_count(buckets[b], context_.layout.stage)};
    SHARDCOMM_TRY(kernels::launch(copy, compute));
  }
  state.summed = false;
  state.carried = true;
  return {};
}

Status Gradients::reduce(UnitId unit, StreamRef compute) {
  Unit& state = units_[unit];
  const UnitLayout& layout = context_.layout.units[unit];
  SHARDCOMM_TRY_ASSIGN(const Event computed, Event::record(compute));
  SHARDCOMM_TRY(context_.stream.wait(computed));
  // Straight into the sums, or into this rank's part of the whole gradients and from there into the sums.
  const bool straight = !in_place_ && !state.summed && context_.layout.gradient_dtype == DType::kF32;
  StreamSpan span = StreamSpan::begin(context_.stream);
  SHARDCOMM_TRY(enqueue_collectives(unit, straight));
  SHARDCOMM_TRY(enqueue_sums(unit, straight));
  SHARDCOMM_TRY(span.end(context_.stream, Lane::kReduce, context_, layout.name, layout.gradient_bytes));
  if (context_.options.poison_freed && context_.layout.stage.shards_gradients) {
    SHARDCOMM_TRY(kernels::launch(poisoning(state.borrowed.data, state.borrowed.bytes), context_.stream));
  }
  SHARDCOMM_TRY_ASSIGN(Event reduced, Event::record(context_.stream));
  state.reduced = std::move(reduced);
  state.summed = true;
  state.carried = false;
  return {};
}

// Stage 0 reduces as the others do and then gathers, so that its sums have their bits.
Status Gradients::enqueue_collectives(UnitId unit, bool straight) {
  const UnitLayout& layout = context_.layout.units[unit];
  const DType dtype = context_.layout.gradient_dtype;
  std::vector<ReduceItem> reduces;
  std::vector<GatherItem> gathers;
  for (uint32_t b = 0; b < layout.buckets.size(); ++b) {
    const UnitBucket& bucket = layout.buckets[b];
    if (!bucket.trainable) continue;
    void* shard = straight ? static_cast<void*>(sum(unit, b)) : own_part(unit, bucket);
    reduces.push_back({whole(unit, bucket), shard, bucket.shard_count, dtype, ReduceOp::kSum});
    gathers.push_back({own_part(unit, bucket), whole(unit, bucket), bucket.shard_count, dtype});
  }
  SHARDCOMM_TRY(
      context_.comm.reduce_scatter_many(reduces, context_.stream, collective_label("reduce", layout.name)).status());
  if (context_.layout.stage.shards_updates) return {};
  return context_.comm.all_gather_many(gathers, context_.stream, collective_label("spread", layout.name)).status();
}

Status Gradients::enqueue_sums(UnitId unit, bool straight) {
  if (straight) return {};
  const Unit& state = units_[unit];
  if (in_place_ && !state.carried) return {};
  const auto& buckets = context_.layout.units[unit].buckets;
  for (uint32_t b = 0; b < buckets.size(); ++b) {
    const UnitBucket& bucket = buckets[b];
    if (!bucket.trainable) continue;
    const size_t count = owned_count(bucket, context_.layout.stage);
    const DType dtype = context_.layout.gradient_dtype;
    const void* term = context_.layout.stage.shards_updates ? own_part(unit, bucket) : whole(unit, bucket);
    if (in_place_) term = carry_.floats() + offsets_[unit][b];
    if (in_place_ || state.summed) {
      const kernels::AccumulateLaunch add{.sum = sum(unit, b), .term = term, .dtype = dtype, .count = count};
      SHARDCOMM_TRY(kernels::launch(add, context_.stream));
    } else {
      const kernels::CastLaunch first{
          .source = term, .source_dtype = dtype, .target = sum(unit, b), .target_dtype = DType::kF32, .count = count};
      SHARDCOMM_TRY(kernels::launch(first, context_.stream));
    }
  }
  return {};
}

void Gradients::give_back(UnitId unit, const std::optional<Event>& last_use) {
  Unit& state = units_[unit];
  if (state.offset) arena_.release(*std::exchange(state.offset, std::nullopt));
  pool_.release(state.borrowed, last_use);
}

Status Gradients::retire(UnitId unit) {
  if (context_.layout.stage.shards_gradients) give_back(unit, units_[unit].reduced);
  return {};
}

Status Gradients::discard(UnitId unit, StreamRef compute) {
  if (!context_.layout.stage.shards_gradients) return {};
  SHARDCOMM_TRY_ASSIGN(const Event last_use, Event::record(compute));
  give_back(unit, last_use);
  return {};
}

Status Gradients::synchronize(Deadline deadline) const {
  for (const Unit& unit : units_) {
    if (unit.reduced) SHARDCOMM_TRY(unit.reduced->synchronize(deadline));
  }
  return {};
}

Status Gradients::zero() {
  const auto zeros = [](std::byte* data, size_t bytes) {
    return kernels::launch(kernels::FillLaunch{.target = data, .bytes = bytes}, StreamRef::caller());
  };
  if (!context_.layout.stage.shards_gradients) SHARDCOMM_TRY(zeros(window_.data(), window_.size_bytes()));
  SHARDCOMM_TRY(zeros(sums_.data(), sums_.size_bytes()));
  for (Unit& unit : units_) {
    unit.zeros = true;
    unit.summed = false;
    unit.carried = false;
    unit.reduced.reset();
  }
  return {};
}

std::byte* Gradients::whole(UnitId unit, const UnitBucket& bucket) const noexcept {
  const Unit& state = units_[unit];
  std::byte* base = context_.layout.stage.shards_gradients ? state.borrowed.data : state.permanent;
  return base == nullptr || !bucket.trainable ? nullptr : base + bucket.gradient_offset_bytes;
}

std::byte* Gradients::own_part(UnitId unit, const UnitBucket& bucket) const noexcept {
  return whole(unit, bucket) + context_.rank() * bucket.shard_count * size_of(context_.layout.gradient_dtype);
}

float* Gradients::sum(UnitId unit, uint32_t bucket) const noexcept {
  const UnitBucket& layout = context_.layout.units[unit].buckets[bucket];
  if (!layout.trainable) return nullptr;
  if (!in_place_) return sums_.floats() + offsets_[unit][bucket];
  return reinterpret_cast<float*>(context_.layout.stage.shards_updates ? own_part(unit, layout) : whole(unit, layout));
}

}  // namespace shardcomm::zero
