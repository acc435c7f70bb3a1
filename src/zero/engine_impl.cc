// The engine's memory, and how the actions of the schedule are carried out.
#include "zero/engine_impl.h"

#include <fmt/format.h>

#include "zero/agree.h"

namespace shardcomm {
namespace {

// How long an engine that is destroyed waits for operations that its peers will surely finish.
constexpr std::chrono::seconds kLeaveTime{5};

}  // namespace

ZeroEngine::Impl::Impl(Communicator& communicator, std::span<const UnitSpec> units, const ZeroOptions& given,
                       zero::Layout made, HostStream own)
    : comm(communicator),
      specs(units.begin(), units.end()),
      options(given),
      layout(std::move(made)),
      account(std::make_shared<zero::MemoryAccount>()),
      stream(std::move(own)),
      context{comm, layout, options, *account, stream.ref()},
      schedule(layout, options),
      trainable_offsets(zero::trainable_offsets(layout)),
      master_offsets(zero::master_offsets(layout)),
      runs(layout.units.size()) {}

// Nothing may run on memory that is gone. The last gathers of stages 1 and 2 may still be on their way, also on peers.
ZeroEngine::Impl::~Impl() {
  const auto now = std::chrono::steady_clock::now();
  for (auto& [unused, end] : compute_ends) {
    if (!end.synchronize(now + kLeaveTime).ok()) break;
  }
  if (stream.ref().synchronize(now + kLeaveTime).ok()) return;
  comm.abort("a ZeRO engine was destroyed with operations in flight");
  [[maybe_unused]] const Status drained = stream.ref().synchronize(Deadline::max());
}

Status ZeroEngine::Impl::allocate() {
  const zero::DryRun plan = zero::dry_run(layout, options);
  auto made_values = zero::Values::create(context, schedule.gathered_capacity());
  SHARDCOMM_TRY(zero::agree(comm, made_values.status()));
  values = std::move(made_values).value();
  auto made_gradients = zero::Gradients::create(context, plan.gradient_capacity);
  SHARDCOMM_TRY(zero::agree(comm, made_gradients.status()));
  gradients = std::move(made_gradients).value();
  const size_t master_bytes = zero::footprint_of(layout).master_bytes;
  auto made_masters = zero::Buffer::create(master_bytes, "f32 master parameters");
  SHARDCOMM_TRY(zero::agree(comm, made_masters.status()));
  masters = std::move(made_masters).value();
  account->add(zero::Purpose::kOptimizer, master_bytes);
  index_pieces();
  account->reset_peak();
  return {};
}

void ZeroEngine::Impl::index_pieces() {
  for (UnitId u = 0; u < layout.units.size(); ++u) {
    const zero::UnitLayout& unit = layout.units[u];
    for (uint32_t p = 0; p < unit.parameters.size(); ++p) {
      const zero::ParameterPlace& place = unit.parameters[p];
      const auto run = place.tied ? std::nullopt : owned_run(place);
      if (!run) continue;
      const zero::UnitBucket& bucket = unit.buckets[place.bucket];
      const size_t in_owned = run->bucket_offset - (options.stage == 0 ? 0 : context.rank() * bucket.shard_count);
      float* sum = gradients->sum(u, place.bucket);
      pieces.push_back({u, p, run->parameter_offset, run->count, value_at(place, run->bucket_offset),
                        sum == nullptr ? nullptr : sum + in_owned});
      piece_indices.push_back({trainable_offsets[u][place.bucket] + in_owned, master_at(place, run->bucket_offset)});
    }
  }
}

std::optional<zero::Run> ZeroEngine::Impl::owned_run(const zero::ParameterPlace& place) const {
  if (options.stage > 0) return zero::shard_run(place, layout.bucket_of(place), comm.rank());
  return place.count == 0 ? std::nullopt : std::optional(zero::Run{0, place.offset, place.count});
}

std::optional<zero::Run> ZeroEngine::Impl::held_run(const zero::ParameterPlace& place) const {
  if (options.stage == 3) return owned_run(place);
  return place.count == 0 ? std::nullopt : std::optional(zero::Run{0, place.offset, place.count});
}

std::byte* ZeroEngine::Impl::value_at(const zero::ParameterPlace& place, size_t bucket_offset) const {
  const zero::UnitBucket& bucket = layout.bucket_of(place);
  const size_t element_bytes = size_of(place.dtype);
  if (options.stage < 3) return values->whole(place.owner, bucket) + bucket_offset * element_bytes;
  return values->shard(place.owner, bucket) + (bucket_offset - context.rank() * bucket.shard_count) * element_bytes;
}

float* ZeroEngine::Impl::master_at(const zero::ParameterPlace& place, size_t bucket_offset) const {
  if (place.dtype != DType::kBF16 || !place.trainable) return nullptr;
  const size_t begin = options.stage == 0 ? 0 : context.rank() * layout.bucket_of(place).shard_count;
  return masters.floats() + master_offsets[place.owner][place.bucket] + (bucket_offset - begin);
}

Status ZeroEngine::Impl::fail(Status status, std::string_view doing, UnitId unit) {
  failed = status.context(fmt::format("{} unit {}", doing, layout.units[unit].name));
  return failed;
}

Status ZeroEngine::Impl::carry_out(std::span<const zero::Action> actions, StreamRef compute) {
  using Kind = zero::Action::Kind;
  for (const auto& [kind, unit] : actions) {
    Status done;
    std::string_view doing;
    switch (kind) {
      case Kind::kGather: doing = "gathering", done = values->gather(unit, schedule.gathered_offset(unit)); break;
      case Kind::kJoin: doing = "gathering", done = values->join(unit, compute); break;
      case Kind::kFree:
        doing = "freeing";
        done = zero::StreamSpan::mark(compute, Lane::kFree, context, layout.units[unit].name,
                                      layout.units[unit].value_bytes);
        if (done.ok()) done = values->free(unit, std::exchange(runs[unit].last_use, std::nullopt));
        break;
      case Kind::kOpen: doing = "opening gradients of", done = gradients->open(unit, compute); break;
      case Kind::kReduce: doing = "reducing gradients of", done = gradients->reduce(unit, compute); break;
      case Kind::kRetire: doing = "retiring gradients of", done = gradients->retire(unit); break;
      case Kind::kDiscard: doing = "discarding gradients of", done = gradients->discard(unit, compute); break;
    }
    if (!done.ok()) return fail(std::move(done), doing, unit);
  }
  return {};
}

void ZeroEngine::Impl::show(UnitId unit, Pass pass) {
  std::vector<ParameterView>& views = runs[unit].views;
  views.clear();
  for (const zero::ParameterPlace& place : layout.units[unit].parameters) {
    const zero::UnitBucket& bucket = layout.bucket_of(place);
    std::byte* gradient = pass == Pass::kForward || !place.trainable ? nullptr : gradients->whole(place.owner, bucket);
    if (gradient != nullptr) gradient += place.offset * size_of(layout.gradient_dtype);
    views.push_back({values->whole(place.owner, bucket) + place.offset * size_of(place.dtype), gradient, place.count,
                     place.dtype, layout.gradient_dtype});
  }
}

void ZeroEngine::Impl::note_compute(StreamRef compute, const Event& end) {
  for (auto& [handle, latest] : compute_ends) {
    if (handle != compute.native()) continue;
    latest = end;
    return;
  }
  compute_ends.emplace_back(compute.native(), end);
}

Status ZeroEngine::Impl::finish_reading() {
  for (const auto& [unused, end] : compute_ends) SHARDCOMM_TRY(context.stream.wait(end));
  return values->finish_reading();
}

Status ZeroEngine::Impl::check_gradients_final(std::string_view caller) const {
  if (const std::string open = schedule.open_unit(); !open.empty()) {
    return Status(Code::kFailedPrecondition,
                  fmt::format("{}: unit {} is still between before and after", caller, open));
  }
  if (const std::string waiting = schedule.unreduced_unit(); !waiting.empty()) {
    return Status(Code::kFailedPrecondition,
                  fmt::format("{}: gradients of unit {} have not been reduced; finish a step with gradient sync on",
                              caller, waiting));
  }
  return {};
}

Status ZeroEngine::Impl::quiesce() {
  SHARDCOMM_TRY(usable());
  const Deadline deadline = zero::operation_deadline(comm);
  Status done;
  for (const auto& [unused, end] : compute_ends) {
    if (done.ok()) done = end.synchronize(deadline);
  }
  if (done.ok()) done = stream.ref().synchronize(deadline);
  if (done.ok()) done = comm.health();
  if (!done.ok()) return failed = done.context("finishing what a ZeRO engine has in flight");
  compute_ends.clear();
  return {};
}

Status ZeroEngine::Impl::prepare_to_change_values() {
  if (const std::string open = schedule.open_unit(); !open.empty()) {
    return Status(Code::kFailedPrecondition, fmt::format("unit {} is still between before and after", open));
  }
  std::vector<zero::Action> actions;
  schedule.drop_gathered(actions);
  SHARDCOMM_TRY(carry_out(actions, StreamRef::caller()));
  SHARDCOMM_TRY(quiesce());
  values->trim();
  return {};
}

Status ZeroEngine::Impl::zero_gradients() {
  std::vector<zero::Action> actions;
  schedule.discard_gradients(actions);
  SHARDCOMM_TRY(carry_out(actions, StreamRef::caller()));
  SHARDCOMM_TRY(quiesce());
  gradients->zero();
  return {};
}

}  // namespace shardcomm
