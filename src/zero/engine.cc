// The public ZeroEngine: creation by agreement, the hooks, the gradient norm.
#include <fmt/format.h>

#include <array>
#include <bit>

#include "zero/adam.h"
#include "zero/agree.h"
#include "zero/engine_impl.h"
#include "zero/norm.h"

namespace shardcomm {
namespace {

Status agree_on_shape(Communicator& comm, const zero::Layout& layout, const ZeroOptions& options) {
  const std::array<zero::Field, 10> fields = {{
      {"stage", static_cast<uint64_t>(options.stage)},
      {"prefetch_units", static_cast<uint64_t>(options.prefetch_units)},
      {"bucket_bytes", options.bucket_bytes},
      {"gathered_bytes_limit", options.gathered_bytes_limit},
      {"free_after_forward", options.free_after_forward ? 1u : 0u},
      {"gradient_dtype", static_cast<uint64_t>(options.gradient_dtype)},
      {"mosaic", options.mosaic ? 1u : 0u},
      {"the number of units", layout.units.size()},
      {"the number of parameters", layout.parameter_count},
      {"the fingerprint of all names, shapes and dtypes", layout.fingerprint},
  }};
  return zero::agree_on(comm, fields, "ZeRO units or options");
}

Status check_stream(StreamRef compute) {
  if (compute.device().kind == Device::Kind::kHost) return {};
  return Status(Code::kUnsupported, "a ZeRO engine computes on host streams or on the caller");
}

}  // namespace

ZeroEngine::ZeroEngine(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
ZeroEngine::ZeroEngine(ZeroEngine&&) noexcept = default;
ZeroEngine& ZeroEngine::operator=(ZeroEngine&&) noexcept = default;
ZeroEngine::~ZeroEngine() = default;

Result<ZeroEngine> ZeroEngine::create(Communicator& comm, std::span<const UnitSpec> units, const ZeroOptions& options) {
  constexpr std::string_view kDoing = "creating a ZeRO engine";
  auto layout = zero::make_layout(units, comm.size(), options);
  auto stream = HostStream::create("zero-comm");
  if (Status all = zero::agree(comm, layout.ok() ? stream.status() : layout.status()); !all.ok())
    return all.context(kDoing);
  if (Status same = agree_on_shape(comm, layout.value(), options); !same.ok()) return same.context(kDoing);
  auto impl = std::make_unique<Impl>(comm, units, options, std::move(layout).value(), std::move(stream).value());
  if (Status allocated = impl->allocate(); !allocated.ok()) return allocated.context(kDoing);
  return ZeroEngine(std::move(impl));
}

Status ZeroEngine::fill_parameters(
    const std::function<void(UnitId, uint32_t parameter, size_t offset, std::span<float> values)>& fill) {
  constexpr size_t kPiece = 64 * 1024;
  Impl& e = *impl_;
  SHARDCOMM_TRY(e.prepare_to_change_values());
  std::vector<float> wide;
  for (UnitId u = 0; u < e.layout.units.size(); ++u) {
    const auto& parameters = e.layout.units[u].parameters;
    for (uint32_t p = 0; p < parameters.size(); ++p) {
      const zero::ParameterPlace& place = parameters[p];
      const auto held = place.tied ? std::nullopt : e.held_run(place);
      if (!held) continue;
      if (place.dtype == DType::kF32) {
        fill(u, p, held->parameter_offset,
             {reinterpret_cast<float*>(e.value_at(place, held->bucket_offset)), held->count});
        continue;
      }
      for (size_t done = 0; done < held->count; done += kPiece) {
        wide.resize(std::min(kPiece, held->count - done));
        fill(u, p, held->parameter_offset + done, wide);
        auto* narrow = reinterpret_cast<uint16_t*>(e.value_at(place, held->bucket_offset + done));
        zero::round_to_bf16(wide.data(), narrow, wide.size());
        const auto owned = e.owned_run(place);
        if (!place.trainable || !owned) continue;
        const size_t begin = std::max(held->bucket_offset + done, owned->bucket_offset);
        const size_t end = std::min(held->bucket_offset + done + wide.size(), owned->bucket_offset + owned->count);
        if (begin >= end) continue;
        const float* from = wide.data() + (begin - held->bucket_offset - done);
        std::copy_n(from, end - begin, e.master_at(place, begin));
      }
    }
  }
  return {};
}

Status ZeroEngine::before(UnitId unit, Pass pass, StreamRef compute) {
  Impl& e = *impl_;
  SHARDCOMM_TRY(e.usable());
  SHARDCOMM_TRY(check_stream(compute));
  std::vector<zero::Action> actions;
  SHARDCOMM_TRY(e.schedule.before(unit, pass, actions));
  SHARDCOMM_TRY(e.carry_out(actions, compute));
  e.show(unit, pass);
  e.runs[unit].span = zero::StreamSpan::begin(compute);
  return {};
}

Status ZeroEngine::after(UnitId unit, Pass pass, StreamRef compute) {
  Impl& e = *impl_;
  const auto leave = [&]() -> Status {
    SHARDCOMM_TRY(e.usable());
    SHARDCOMM_TRY(check_stream(compute));
    std::vector<zero::Action> actions;
    SHARDCOMM_TRY(e.schedule.after(unit, pass, e.sync, actions));
    const zero::UnitLayout& layout = e.layout.units[unit];
    e.runs[unit].views.clear();
    SHARDCOMM_TRY(e.runs[unit].span.end(compute, Lane::kCompute, e.context, layout.name, layout.value_bytes));
    SHARDCOMM_TRY_ASSIGN(const Event used, Event::record(compute));
    for (const UnitId id : layout.needs) e.runs[id].last_use = used;
    e.note_compute(compute, used);
    return e.carry_out(actions, compute);
  };
  Status left = leave();
  if (e.after_error.ok()) e.after_error = left;
  return left;
}

Status ZeroEngine::finish_step(StreamRef compute) {
  Impl& e = *impl_;
  if (!e.after_error.ok()) return std::exchange(e.after_error, Status());
  SHARDCOMM_TRY(e.usable());
  SHARDCOMM_TRY(check_stream(compute));
  std::vector<zero::Action> actions;
  SHARDCOMM_TRY(e.schedule.finish(e.sync, actions));
  SHARDCOMM_TRY(e.carry_out(actions, compute));
  SHARDCOMM_TRY(e.finish_reading());
  SHARDCOMM_TRY_ASSIGN(const Event reduced, Event::record(e.context.stream));
  SHARDCOMM_TRY(compute.wait(reduced));
  SHARDCOMM_TRY_ASSIGN(const Event end, Event::record(compute));
  e.note_compute(compute, end);
  if (Status health = e.comm.health(); !health.ok()) return e.failed = health.context("finishing a step");
  return {};
}

void ZeroEngine::set_gradient_sync(bool on) noexcept { impl_->sync = on; }

void ZeroEngine::zero_gradients() {
  Impl& e = *impl_;
  if (Status zeroed = e.zero_gradients(); e.failed.ok()) e.failed = std::move(zeroed);
}

std::span<const ParameterView> ZeroEngine::parameters(UnitId unit) const {
  if (unit >= impl_->runs.size()) return {};
  return impl_->runs[unit].views;
}

UnitState ZeroEngine::state(UnitId unit) const noexcept {
  if (unit >= impl_->runs.size()) return UnitState::kSharded;
  if (impl_->options.stage == 3 && !impl_->schedule.is_gathered(unit)) return UnitState::kSharded;
  return impl_->values->arriving(unit) ? UnitState::kGathering : UnitState::kGathered;
}

std::span<const ShardPiece> ZeroEngine::pieces() const noexcept { return impl_->pieces; }
std::span<const UnitSpec> ZeroEngine::units() const noexcept { return impl_->specs; }
const ZeroOptions& ZeroEngine::options() const noexcept { return impl_->options; }
Communicator& ZeroEngine::communicator() const noexcept { return impl_->comm; }
MemoryReport ZeroEngine::memory() const noexcept { return impl_->account->report(); }
void ZeroEngine::reset_peak() noexcept { impl_->account->reset_peak(); }

Result<double> ZeroEngine::gradient_norm() {
  Impl& e = *impl_;
  SHARDCOMM_TRY(e.check_gradients_final("gradient_norm"));
  SHARDCOMM_TRY(e.quiesce());
  // Each element on one rank only, also where all ranks have all sums.
  std::vector<std::span<const float>> parts;
  for (UnitId u = 0; u < e.layout.units.size(); ++u) {
    const auto& buckets = e.layout.units[u].buckets;
    for (uint32_t b = 0; b < buckets.size(); ++b) {
      if (!buckets[b].trainable) continue;
      const size_t begin = e.options.stage == 0 ? e.context.rank() * buckets[b].shard_count : 0;
      parts.emplace_back(e.gradients->sum(u, b) + begin, buckets[b].shard_count);
    }
  }
  uint32_t own_largest = 0, largest = 0;
  for (const auto& part : parts) own_largest = std::max(own_largest, zero::largest_magnitude(part));
  const AllReduceArgs find_largest{&own_largest, &largest, 1, DType::kU32, ReduceOp::kMax, "gradient norm"};
  SHARDCOMM_TRY(zero::finish(e.comm.all_reduce(find_largest, StreamRef::caller()), e.comm));
  zero::SquareSum own{}, sum{};
  for (const auto& part : parts) zero::add_squares(part, largest, own);
  const AllReduceArgs add_up{own.data(), sum.data(), own.size(), DType::kU64, ReduceOp::kSum, "gradient norm"};
  SHARDCOMM_TRY(zero::finish(e.comm.all_reduce(add_up, StreamRef::caller()), e.comm));
  return zero::norm_of(sum, largest);
}

UnitScope::UnitScope(ZeroEngine* engine, UnitId unit, Pass pass, StreamRef compute) noexcept
    : engine_(engine), unit_(unit), pass_(pass), compute_(compute) {}

Result<UnitScope> UnitScope::enter(ZeroEngine& engine, UnitId unit, Pass pass, StreamRef compute) {
  SHARDCOMM_TRY(engine.before(unit, pass, compute));
  return UnitScope(&engine, unit, pass, compute);
}

UnitScope::UnitScope(UnitScope&& other) noexcept
    : engine_(std::exchange(other.engine_, nullptr)),
      unit_(other.unit_),
      pass_(other.pass_),
      compute_(other.compute_) {}

UnitScope::~UnitScope() {
  // The engine keeps the error for finish_step().
  if (engine_ != nullptr) static_cast<void>(engine_->after(unit_, pass_, compute_));
}

std::span<const ParameterView> UnitScope::parameters() const { return engine_->parameters(unit_); }

}  // namespace shardcomm
