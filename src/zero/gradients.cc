#include "zero/gradients.h"

#include "kernels/kernels.h"
#include "zero/transfer.h"

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
      pool_(window_.data(), Purpose::kUnreduced, context.account, grow_windows(context)),
      units_(context.layout.units.size()) {
  std::byte* base = window_.data();
  for (size_t u = 0; u < units_.size(); ++u) {
    const UnitLayout& unit = context.layout.units[u];
    units_[u].parts.resize(unit.gradient_transfers.size());
    if (context.layout.stage.shards_gradients) continue;
    units_[u].whole = base;
    base += unit.gradient_bytes;
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

Status Gradients::open(UnitId unit, std::optional<size_t> offset, StreamRef compute) {
  Unit& state = units_[unit];
  const size_t bytes = context_.layout.units[unit].gradient_bytes;
  if (context_.layout.stage.shards_gradients) {
    SHARDCOMM_TRY(borrow(unit, offset, compute));
    return kernels::launch(kernels::FillLaunch{.target = state.whole, .bytes = bytes}, compute);
  }
  for (const Part& part : state.parts) {
    if (part.reduced) SHARDCOMM_TRY(compute.wait(*part.reduced));
  }
  state.carried = in_place_ && state.parts.front().summed;
  if (state.carried) SHARDCOMM_TRY(carry_sums(unit, compute));
  if (std::exchange(state.zeros, false)) return {};
  return kernels::launch(kernels::FillLaunch{.target = state.whole, .bytes = bytes}, compute);
}

Status Gradients::borrow(UnitId unit, std::optional<size_t> offset, StreamRef compute) {
  Unit& state = units_[unit];
  const UnitLayout& layout = context_.layout.units[unit];
  SHARDCOMM_TRY_ASSIGN(const Block block, pool_.acquire(offset, layout.gradient_bytes, compute));
  state.whole = block.data;
  for (size_t t = 0; t < state.parts.size(); ++t) {
    const Transfer& transfer = layout.gradient_transfers[t];
    state.parts[t].borrowed = {block.data + transfer.begin_bytes, transfer.bytes};
  }
  return {};
}

// The whole gradients are about to be zeroed, and the sums are part of them.
Status Gradients::carry_sums(UnitId unit, StreamRef compute) {
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
  return {};
}

Status Gradients::reduce(UnitId unit, uint32_t transfer, StreamRef compute) {
  Part& part = units_[unit].parts[transfer];
  const UnitLayout& layout = context_.layout.units[unit];
  SHARDCOMM_TRY_ASSIGN(const Event computed, Event::record(compute));
  SHARDCOMM_TRY(context_.stream.wait(computed));
  // Straight into the sums, or into this rank's part of the whole gradients and from there into the sums.
  const bool straight = !in_place_ && !part.summed && context_.layout.gradient_dtype == DType::kF32;
  StreamSpan span = StreamSpan::begin(context_.stream);
  SHARDCOMM_TRY(enqueue_collectives(unit, transfer, straight));
  SHARDCOMM_TRY(enqueue_sums(unit, transfer, straight));
  SHARDCOMM_TRY(span.end(context_.stream, Lane::kReduce, context_,
                         transfer_name(layout, layout.gradient_transfers, transfer),
                         layout.gradient_transfers[transfer].bytes));
  if (context_.options.poison_freed && context_.layout.stage.shards_gradients) {
    SHARDCOMM_TRY(kernels::launch(poisoning(part.borrowed.data, part.borrowed.bytes), context_.stream));
  }
  SHARDCOMM_TRY_ASSIGN(Event reduced, Event::record(context_.stream));
  part.reduced = std::move(reduced);
  part.summed = true;
  return {};
}

// Stage 0 reduces as the others do and then gathers, so that its sums have their bits.
Status Gradients::enqueue_collectives(UnitId unit, uint32_t transfer, bool straight) {
  const UnitLayout& layout = context_.layout.units[unit];
  const Transfer& part = layout.gradient_transfers[transfer];
  const std::string name = transfer_name(layout, layout.gradient_transfers, transfer);
  const DType dtype = context_.layout.gradient_dtype;
  const auto reduces = [&] {
    std::vector<ReduceItem> items;
    for (uint32_t b = part.first_bucket; b < part.end_bucket; ++b) {
      const UnitBucket& bucket = layout.buckets[b];
      void* const shard = straight ? static_cast<void*>(sum(unit, b)) : own_part(unit, bucket);
      items.push_back({whole(unit, bucket), shard, bucket.shard_count, dtype, ReduceOp::kSum});
    }
    return items;
  };
  const auto gathers = [&] {
    std::vector<GatherItem> items;
    for (uint32_t b = part.first_bucket; b < part.end_bucket; ++b) {
      const UnitBucket& bucket = layout.buckets[b];
      items.push_back({own_part(unit, bucket), whole(unit, bucket), bucket.shard_count, dtype});
    }
    return items;
  };
  Unit& state = units_[unit];
  Part& calls = state.parts[transfer];
  RecurringCall& reduction = straight ? calls.straight_reduction : calls.reduction;
  SHARDCOMM_TRY(
      reduction.run(context_.comm, context_.stream, state.whole, collective_label("reduce", name), reduces).status());
  if (context_.layout.stage.shards_updates) return {};
  return calls.spread.run(context_.comm, context_.stream, state.whole, collective_label("spread", name), gathers)
      .status();
}

Status Gradients::enqueue_sums(UnitId unit, uint32_t transfer, bool straight) {
  if (straight) return {};
  const Unit& state = units_[unit];
  if (in_place_ && !state.carried) return {};
  const UnitLayout& layout = context_.layout.units[unit];
  const Transfer& part = layout.gradient_transfers[transfer];
  for (uint32_t b = part.first_bucket; b < part.end_bucket; ++b) {
    const UnitBucket& bucket = layout.buckets[b];
    const size_t count = owned_count(bucket, context_.layout.stage);
    const DType dtype = context_.layout.gradient_dtype;
    const void* term = context_.layout.stage.shards_updates ? own_part(unit, bucket) : whole(unit, bucket);
    if (in_place_) term = carry_.floats() + offsets_[unit][b];
    if (in_place_ || state.parts[transfer].summed) {
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

void Gradients::retire(UnitId unit, uint32_t transfer) {
  if (!context_.layout.stage.shards_gradients) return;
  Part& part = units_[unit].parts[transfer];
  pool_.release(part.borrowed, part.reduced);
}

Status Gradients::discard(UnitId unit, StreamRef compute) {
  if (!context_.layout.stage.shards_gradients) return {};
  SHARDCOMM_TRY_ASSIGN(const Event last_use, Event::record(compute));
  for (Part& part : units_[unit].parts) pool_.release(part.borrowed, last_use);
  units_[unit].whole = nullptr;
  return {};
}

Status Gradients::synchronize(Deadline deadline) const {
  for (const Unit& unit : units_) {
    for (const Part& part : unit.parts) {
      if (part.reduced) SHARDCOMM_TRY(part.reduced->synchronize(deadline));
    }
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
    unit.carried = false;
    for (Part& part : unit.parts) {
      part.summed = false;
      part.reduced.reset();
    }
  }
  return {};
}

std::byte* Gradients::whole(UnitId unit, const UnitBucket& bucket) const noexcept {
  std::byte* base = units_[unit].whole;
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
