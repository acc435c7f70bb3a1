#include "zero/values.h"

#include "kernels/kernels.h"
#include "zero/footprint.h"
#include "zero/transfer.h"

namespace shardcomm::zero {
namespace {

Result<Pool::Extra> more_memory(size_t bytes) {
  SHARDCOMM_TRY_ASSIGN(Buffer buffer, Buffer::create(bytes, "gathered parameters"));
  auto owner = std::make_shared<Buffer>(std::move(buffer));
  return Pool::Extra{owner->data(), owner};
}

}  // namespace

Values::Values(const Context& context, Window window, Buffer memory)
    : context_(context),
      window_(std::move(window)),
      memory_(std::move(memory)),
      pool_(memory_.data(), Purpose::kGathered, context.account, more_memory),
      units_(context.layout.units.size()) {
  std::byte* base = window_.data();
  for (size_t u = 0; u < units_.size(); ++u) {
    units_[u].base = base;
    const UnitLayout& unit = context.layout.units[u];
    units_[u].gathers.resize(unit.value_transfers.size());
    units_[u].publishes.resize(unit.gradient_transfers.size());
    base += context.layout.stage.shards_values ? unit.shard_bytes : unit.value_bytes;
  }
}

Result<std::unique_ptr<Values>> Values::create(const Context& context, size_t gathered_capacity) {
  const size_t bytes = footprint_of(context.layout).values_bytes;
  SHARDCOMM_TRY_ASSIGN(Window window, context.comm.allocate_window(std::max(bytes, kAlignBytes), "zero parameters"));
  SHARDCOMM_TRY_ASSIGN(Buffer memory, Buffer::create(gathered_capacity, "gathered parameters"));
  context.account.add(Purpose::kParameters, bytes);
  std::unique_ptr<Values> values(new Values(context, std::move(window), std::move(memory)));
  SHARDCOMM_TRY(values->allocate_mosaics());
  return values;
}

Status Values::allocate_mosaics() {
  for (size_t u = 0; u < units_.size(); ++u) {
    const UnitLayout& layout = context_.layout.units[u];
    units_[u].mosaics.resize(layout.buckets.size());
    for (size_t b = 0; b < layout.buckets.size(); ++b) {
      const UnitBucket& bucket = layout.buckets[b];
      if (!bucket.mosaic) continue;
      SHARDCOMM_TRY_ASSIGN(units_[u].mosaics[b], context_.comm.allocate_mosaic(
                                                     bucket.shard_bytes(), collective_label("gather", layout.name)));
      context_.account.add(Purpose::kParameters, bucket.shard_bytes());
      has_mosaics_ = true;
    }
  }
  return {};
}

Status Values::gather(UnitId unit, uint32_t transfer, std::optional<size_t> offset) {
  const UnitLayout& layout = context_.layout.units[unit];
  const Transfer& part = layout.value_transfers[transfer];
  Unit& state = units_[unit];
  SHARDCOMM_TRY(acquire(unit, part, offset));
  const std::string name = transfer_name(layout, layout.value_transfers, transfer);
  StreamSpan span = StreamSpan::begin(context_.stream);
  std::vector<const UnitBucket*> gathered;
  for (const UnitBucket& bucket : layout.buckets_of(part)) {
    if (bucket.mosaic) {
      SHARDCOMM_TRY_ASSIGN(state.ready, context_.comm.all_gather(mosaic_of(unit, bucket), context_.stream));
    } else {
      gathered.push_back(&bucket);
    }
  }
  if (!gathered.empty()) {
    const auto items = [&] { return gather_items(unit, gathered); };
    SHARDCOMM_TRY_ASSIGN(state.ready, state.gathers[transfer].run(context_.comm, context_.stream, state.gathered,
                                                                  collective_label("gather", name), items));
  }
  return span.end(context_.stream, Lane::kGather, context_, name, part.bytes);
}

std::vector<GatherItem> Values::gather_items(UnitId unit, std::span<const UnitBucket* const> buckets) const {
  std::vector<GatherItem> items;
  items.reserve(buckets.size());
  for (const UnitBucket* bucket : buckets)
    items.push_back({shard(unit, *bucket), whole(unit, *bucket), bucket->shard_count, bucket->dtype});
  return items;
}

Status Values::acquire(UnitId unit, const Transfer& transfer, std::optional<size_t> offset) {
  Unit& state = units_[unit];
  if (transfer.bytes == 0) return {};
  if (offset) {
    SHARDCOMM_TRY_ASSIGN(const Block block,
                         pool_.acquire(*offset + transfer.begin_bytes, transfer.bytes, context_.stream));
    state.gathered = block.data - transfer.begin_bytes;
    state.blocks.push_back(block);
  } else if (state.blocks.empty()) {
    SHARDCOMM_TRY_ASSIGN(const Block block,
                         pool_.acquire(std::nullopt, context_.layout.units[unit].value_bytes, context_.stream));
    state.gathered = block.data;
    state.blocks.push_back(block);
  }
  return {};
}

Status Values::free(UnitId unit, const std::optional<Event>& last_use) {
  Unit& state = units_[unit];
  state.ready = {};
  state.gathered = nullptr;
  const bool poisons = context_.options.poison_freed && !state.blocks.empty();
  // Nobody may see these bytes until the engine's stream gathers into them, which comes after what is enqueued here.
  if (poisons && last_use) SHARDCOMM_TRY(context_.stream.wait(*last_use));
  for (Block& block : state.blocks) {
    if (poisons) SHARDCOMM_TRY(kernels::launch(poisoning(block.data, block.bytes), context_.stream));
    pool_.release(block, poisons ? std::nullopt : last_use);
  }
  state.blocks.clear();
  return {};
}

Status Values::publish(UnitId unit) {
  const UnitLayout& layout = context_.layout.units[unit];
  for (size_t t = 0; t < layout.gradient_transfers.size(); ++t) {
    const std::string name = transfer_name(layout, layout.gradient_transfers, t);
    std::vector<const UnitBucket*> published;
    size_t bytes = 0;
    for (const UnitBucket& bucket : layout.buckets_of(layout.gradient_transfers[t])) {
      published.push_back(&bucket);
      bytes += bucket.full_bytes();
    }
    StreamSpan span = StreamSpan::begin(context_.stream);
    const auto items = [&] { return gather_items(unit, published); };
    SHARDCOMM_TRY_ASSIGN(units_[unit].ready,
                         units_[unit].publishes[t].run(context_.comm, context_.stream, units_[unit].base,
                                                       collective_label("publish", name), items));
    SHARDCOMM_TRY(span.end(context_.stream, Lane::kGather, context_, name, bytes));
  }
  return {};
}

Status Values::join(UnitId unit, StreamRef compute) { return compute.wait(units_[unit].ready); }

Status Values::finish_reading() {
  return has_mosaics_ ? context_.comm.barrier(context_.stream, "zero: values are read").status() : Status();
}

std::byte* Values::whole(UnitId unit, const UnitBucket& bucket) const noexcept {
  const Unit& state = units_[unit];
  // Views are made of pointers that could be written through; a write here is SIGSEGV, as window.h says.
  if (bucket.mosaic) return const_cast<std::byte*>(mosaic_of(unit, bucket).all());
  return (context_.layout.stage.shards_values ? state.gathered : state.base) + bucket.full_offset_bytes;
}

std::byte* Values::shard(UnitId unit, const UnitBucket& bucket) const noexcept {
  if (bucket.mosaic) return mosaic_of(unit, bucket).shard();
  if (context_.layout.stage.shards_values) return units_[unit].base + bucket.shard_offset_bytes;
  return units_[unit].base + bucket.full_offset_bytes + context_.rank() * bucket.shard_bytes();
}

std::byte* Values::owned(UnitId unit, const UnitBucket& bucket) const noexcept {
  return context_.layout.stage.shards_updates ? shard(unit, bucket) : whole(unit, bucket);
}

const MosaicWindow& Values::mosaic_of(UnitId unit, const UnitBucket& bucket) const noexcept {
  const auto index = static_cast<size_t>(&bucket - context_.layout.units[unit].buckets.data());
  return *units_[unit].mosaics[index];
}

}  // namespace shardcomm::zero
