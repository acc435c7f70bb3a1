// The engine's memory: allocated by agreement, divided into pieces, watched for writes outside updates, and left.
#include "zero/engine_impl.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "zero/agree.h"
#include "zero/memory_estimate.h"
#include "zero/transfer.h"

namespace shardcomm {
namespace {

// How long an engine that is destroyed waits for operations that its peers will surely finish, and once more for what
// an abort ends.
constexpr std::chrono::milliseconds kLeaveTime{5000};

}  // namespace

ZeroEngine::Impl::Impl(Communicator& communicator, std::span<const UnitSpec> units, const ZeroOptions& given,
                       zero::Layout made, HostStream own)
    : comm(communicator),
      specs(units.begin(), units.end()),
      options(given),
      layout(std::move(made)),
      account(std::make_shared<zero::MemoryAccount>()),
      stream_(std::move(own)),
      context_{comm, layout, options, *account, stream_.ref()},
      gradient_capacity_(zero::dry_run(layout, options).gradient_capacity),
      schedule_(layout, options, gradient_capacity_),
      trainable_offsets_(zero::trainable_offsets(layout)),
      seals_(layout.units.size()),
      runs_(layout.units.size()) {}

Status ZeroEngine::Impl::allocate() {
  auto values = zero::Values::create(context_, schedule_.gathered_capacity());
  SHARDCOMM_TRY(zero::agree(comm, values.status()));
  values_ = std::move(values).value();
  auto gradients = zero::Gradients::create(context_, gradient_capacity_);
  SHARDCOMM_TRY(zero::agree(comm, gradients.status()));
  gradients_ = std::move(gradients).value();
  auto masters = zero::Masters::create(context_, *values_);
  SHARDCOMM_TRY(zero::agree(comm, masters.status()));
  masters_.emplace(std::move(masters).value());
  index_pieces();
  watch_memory();
  account->reset_peak();
  return {};
}

void ZeroEngine::Impl::index_pieces() {
  for (UnitId u = 0; u < layout.units.size(); ++u) {
    const auto& parameters = layout.units[u].parameters;
    for (uint32_t p = 0; p < parameters.size(); ++p) {
      if (parameters[p].tied) continue;
      for (const uint32_t b : parameters[p].buckets()) index_piece(u, p, b);
    }
  }
}

void ZeroEngine::Impl::index_piece(UnitId unit, uint32_t parameter, uint32_t bucket) {
  const zero::ParameterPlace& place = layout.units[unit].parameters[parameter];
  const auto run = owned_run(place, bucket);
  if (!run) return;
  std::byte* value = value_at(place, bucket, run->bucket_offset);
  ShardPiece piece{.unit = unit,
                   .parameter = parameter,
                   .offset = run->parameter_offset,
                   .count = run->count,
                   .value = value,
                   .gradient = nullptr,
                   .master = nullptr,
                   .state_offset = 0};
  if (place.trainable) {
    const size_t in_owned =
        run->bucket_offset - zero::owned_begin(layout.bucket(place, bucket), layout.stage, context_.rank());
    float* master = master_at(place, bucket, run->bucket_offset);
    piece.gradient = gradients_->sum(unit, bucket) + in_owned;
    piece.master = master != nullptr ? master : reinterpret_cast<float*>(value);
    piece.state_offset = trainable_offsets_[unit][bucket] + in_owned;
  }
  pieces.push_back(piece);
}

void ZeroEngine::Impl::watch_memory() {
  using Writer = zero::Seals::Writer;
  for (UnitId u = 0; u < layout.units.size(); ++u) {
    const auto& buckets = layout.units[u].buckets;
    for (uint32_t b = 0; b < buckets.size(); ++b) {
      const size_t count = zero::owned_count(buckets[b], layout.stage);
      const float* masters = masters_->of(u, b);
      const bool is_master = buckets[b].trainable && masters == nullptr;
      seals_.watch(u, {values_->owned(u, buckets[b]), count * size_of(buckets[b].dtype)},
                   is_master ? Writer::kUpdate : Writer::kEngine);
      if (masters != nullptr) seals_.watch(u, std::as_bytes(std::span(masters, count)), Writer::kUpdate);
    }
  }
}

std::optional<zero::Run> ZeroEngine::Impl::owned_run(const zero::ParameterPlace& place, uint32_t bucket) const {
  if (layout.stage.shards_updates) return zero::shard_run(layout, place, bucket, comm.rank());
  return zero::whole_run(layout, place, bucket);
}

std::optional<zero::Run> ZeroEngine::Impl::held_run(const zero::ParameterPlace& place, uint32_t bucket) const {
  return layout.stage.shards_values ? owned_run(place, bucket) : zero::whole_run(layout, place, bucket);
}

std::byte* ZeroEngine::Impl::value_at(const zero::ParameterPlace& place, uint32_t index, size_t bucket_offset) const {
  const zero::UnitBucket& bucket = layout.bucket(place, index);
  const size_t element_bytes = size_of(place.dtype);
  if (!layout.stage.shards_values) return values_->whole(place.owner, bucket) + bucket_offset * element_bytes;
  return values_->shard(place.owner, bucket) + (bucket_offset - context_.rank() * bucket.shard_count) * element_bytes;
}

float* ZeroEngine::Impl::master_at(const zero::ParameterPlace& place, uint32_t bucket, size_t bucket_offset) const {
  float* masters = masters_->of(place.owner, bucket);
  if (masters == nullptr) return nullptr;
  return masters + (bucket_offset - zero::owned_begin(layout.bucket(place, bucket), layout.stage, context_.rank()));
}

std::span<const ParameterView> ZeroEngine::Impl::views(UnitId unit) const noexcept {
  if (unit >= runs_.size()) return {};
  return runs_[unit].views;
}

UnitState ZeroEngine::Impl::state(UnitId unit) const noexcept {
  if (unit >= runs_.size()) return UnitState::kSharded;
  if (layout.stage.shards_values) {
    if (!schedule_.is_partly_gathered(unit)) return UnitState::kSharded;
    if (!schedule_.is_gathered(unit)) return UnitState::kGathering;
  }
  return values_->arriving(unit) ? UnitState::kGathering : UnitState::kGathered;
}

// The last gathers of an update may still be on their way, also on peers. What an abort does not end is a task of the
// caller's.
bool ZeroEngine::Impl::drain() noexcept {
  const auto patience = std::min(comm.options().timeout, kLeaveTime);
  const auto drained = [&] {
    const Deadline deadline = std::chrono::steady_clock::now() + patience;
    const bool computed = std::all_of(compute_ends_.begin(), compute_ends_.end(),
                                      [&](const auto& end) { return end.second.synchronize(deadline).ok(); });
    return stream_.ref().synchronize(deadline).ok() && computed;
  };
  if (drained()) return true;
  comm.abort("a ZeRO engine was destroyed with operations in flight");
  if (drained()) return true;
  log(Level::kError, "rank {} leaves the memory of a destroyed ZeRO engine to a stream that is busy after {} ms",
      comm.rank(), 2 * patience.count());
  return false;
}

// The communicator's failure is that of one operation, which may be another unit's: its label names it, and this unit
// is only where it was noticed.
Status ZeroEngine::Impl::fail(Status status, std::string_view doing, UnitId unit) {
  const std::string& name = layout.units[unit].name;
  const std::string here = fmt::format("{} unit {}", doing, name);
  const bool is_own = comm.health().ok() || zero::names_operation_of(status.message(), name);
  return failed_ = is_own ? status.context(here) : status.note(fmt::format("noticed when {}", here));
}

Status ZeroEngine::Impl::refuse(std::string_view operation, std::string_view cause, std::string_view remedy) const {
  return Status(Code::kFailedPrecondition, fmt::format("rank {}: {}: {}; {}", comm.rank(), operation, cause, remedy));
}

std::string ZeroEngine::Impl::unit_name(UnitId unit) const {
  return unit < layout.units.size() ? layout.units[unit].name : fmt::format("unit {}", unit);
}

}  // namespace shardcomm
