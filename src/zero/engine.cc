// The public ZeroEngine: creation by agreement, and what leads to the implementation.
#include <array>
#include <mutex>

#include "zero/agree.h"
#include "zero/engine_impl.h"

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

// Keeps to the end of the process what a stream may still use.
void abandon(std::unique_ptr<ZeroEngine::Impl> impl) {
  static std::mutex mutex;
  static auto& abandoned = *new std::vector<std::unique_ptr<ZeroEngine::Impl>>;
  const std::lock_guard lock(mutex);
  abandoned.push_back(std::move(impl));
}

}  // namespace

ZeroEngine::ZeroEngine(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {
  if (impl_ != nullptr) impl_->owner = this;
}
ZeroEngine::ZeroEngine(ZeroEngine&& other) noexcept : ZeroEngine(std::move(other.impl_)) {}

ZeroEngine& ZeroEngine::operator=(ZeroEngine&& other) noexcept {
  ZeroEngine old(std::move(*this));
  impl_ = std::move(other.impl_);
  if (impl_ != nullptr) impl_->owner = this;
  return *this;
}

ZeroEngine::~ZeroEngine() {
  if (impl_ != nullptr && !impl_->drain()) abandon(std::move(impl_));
}

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

ZeroEngine::Ref ZeroEngine::ref() noexcept { return Ref(impl_.get()); }
ZeroEngine& ZeroEngine::Ref::operator*() const noexcept { return *impl_->owner; }

Status ZeroEngine::fill_parameters(
    const std::function<void(UnitId, uint32_t parameter, size_t offset, std::span<float> values)>& fill) {
  return impl_->fill_parameters(fill);
}

Status ZeroEngine::before(UnitId unit, Pass pass, StreamRef compute) { return impl_->before(unit, pass, compute); }
Status ZeroEngine::after(UnitId unit, Pass pass, StreamRef compute) { return impl_->after(unit, pass, compute); }
Status ZeroEngine::finish_step(StreamRef compute) { return impl_->finish_step(compute); }

void ZeroEngine::set_gradient_sync(bool on) noexcept { impl_->sync = on; }
Status ZeroEngine::zero_gradients() { return impl_->zero_gradients(); }

Status ZeroEngine::begin_update() { return impl_->begin_update(); }
Status ZeroEngine::publish(UnitId unit) { return impl_->publish(unit); }
Status ZeroEngine::publish() { return impl_->publish(); }
Status ZeroEngine::synchronize(Deadline deadline) { return impl_->synchronize(deadline); }

std::span<const ParameterView> ZeroEngine::parameters(UnitId unit) const { return impl_->views(unit); }
std::span<const ShardPiece> ZeroEngine::pieces() const noexcept { return impl_->pieces; }
size_t ZeroEngine::optimized_count() const noexcept { return zero::owned_trainable_count(impl_->layout); }
UnitState ZeroEngine::state(UnitId unit) const noexcept { return impl_->state(unit); }
std::span<const UnitSpec> ZeroEngine::units() const noexcept { return impl_->specs; }
const ZeroOptions& ZeroEngine::options() const noexcept { return impl_->options; }
Communicator& ZeroEngine::communicator() const noexcept { return impl_->comm; }

Result<double> ZeroEngine::gradient_norm() { return impl_->gradient_norm(); }
MemoryReport ZeroEngine::memory() const noexcept { return impl_->account->report(); }
void ZeroEngine::reset_peak() noexcept { impl_->account->reset_peak(); }

std::shared_ptr<const void> ZeroEngine::count_optimizer_bytes(size_t bytes) {
  const auto& account = impl_->account;
  account->add(zero::Purpose::kOptimizer, bytes);
  return {account.get(), [account, bytes](const void*) { account->remove(zero::Purpose::kOptimizer, bytes); }};
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
