// The hooks: what the schedule says, carried out on memory and streams.
#include <fmt/format.h>

#include "zero/engine_impl.h"

namespace shardcomm {
namespace {

Status check_stream(StreamRef compute) {
  if (compute.device().kind == Device::Kind::kHost) return {};
  return Status(Code::kUnsupported, "a ZeRO engine computes on host streams or on the caller");
}

constexpr std::string_view kUnpublished = "the update that begin_update() opened has not been published";
constexpr std::string_view kPublishFirst = "call publish() first";

}  // namespace

Status ZeroEngine::Impl::before(UnitId unit, Pass pass, StreamRef compute) {
  SHARDCOMM_TRY(usable());
  SHARDCOMM_TRY(check_stream(compute));
  if (updating_) return refuse(fmt::format("before({})", unit_name(unit)), kUnpublished, kPublishFirst);
  if (!in_step_) SHARDCOMM_TRY(check_untouched(fmt::format("before({})", unit_name(unit))));
  return enter(unit, pass, compute);
}

Status ZeroEngine::Impl::enter(UnitId unit, Pass pass, StreamRef compute) {
  std::vector<zero::Action> actions;
  SHARDCOMM_TRY(schedule_.before(unit, pass, actions));
  in_step_ = true;
  SHARDCOMM_TRY(carry_out(actions, compute));
  show(unit, pass);
  runs_[unit].span = zero::StreamSpan::begin(compute);
  return {};
}

Status ZeroEngine::Impl::after(UnitId unit, Pass pass, StreamRef compute) {
  Status left = leave(unit, pass, compute);
  // Once a step, and not before the unit is left, so that the mistake can be mended at rest.
  if (left.ok() && pass == Pass::kBackward) {
    for (const UnitId id : layout.units[unit].needs) {
      if (left.ok() && !seals_.intact(id)) left = written_outside(fmt::format("after({})", unit_name(unit)), id);
    }
  }
  if (after_error_.ok()) after_error_ = left;
  return left;
}

Status ZeroEngine::Impl::leave(UnitId unit, Pass pass, StreamRef compute) {
  SHARDCOMM_TRY(usable());
  SHARDCOMM_TRY(check_stream(compute));
  std::vector<zero::Action> actions;
  SHARDCOMM_TRY(schedule_.after(unit, pass, sync, actions));
  const zero::UnitLayout& unit_layout = layout.units[unit];
  runs_[unit].views.clear();
  SHARDCOMM_TRY(runs_[unit].span.end(compute, Lane::kCompute, context_, unit_layout.name, unit_layout.value_bytes));
  SHARDCOMM_TRY_ASSIGN(const Event used, Event::record(compute));
  for (const UnitId id : unit_layout.needs) runs_[id].last_use = used;
  note_compute(compute, used);
  return carry_out(actions, compute);
}

Status ZeroEngine::Impl::finish_step(StreamRef compute) {
  if (!after_error_.ok()) return std::exchange(after_error_, Status());
  SHARDCOMM_TRY(usable());
  SHARDCOMM_TRY(check_stream(compute));
  if (updating_) return refuse("finish_step", kUnpublished, kPublishFirst);
  std::vector<zero::Action> actions;
  SHARDCOMM_TRY(schedule_.finish(sync, actions));
  SHARDCOMM_TRY(carry_out(actions, compute));
  SHARDCOMM_TRY(finish_reading());
  SHARDCOMM_TRY_ASSIGN(const Event reduced, Event::record(context_.stream));
  SHARDCOMM_TRY(compute.wait(reduced));
  SHARDCOMM_TRY_ASSIGN(const Event end, Event::record(compute));
  note_compute(compute, end);
  if (Status health = comm.health(); !health.ok()) return failed_ = health.context("finishing a step");
  in_step_ = false;
  return {};
}

Status ZeroEngine::Impl::carry_out(std::span<const zero::Action> actions, StreamRef compute) {
  using Kind = zero::Action::Kind;
  for (const auto& [kind, unit, transfer] : actions) {
    Status done;
    std::string_view doing;
    switch (kind) {
      case Kind::kGather:
        doing = "gathering", done = values_->gather(unit, transfer, schedule_.gathered_offset(unit));
        break;
      case Kind::kJoin: doing = "gathering", done = values_->join(unit, compute); break;
      case Kind::kFree:
        doing = "freeing";
        done = zero::StreamSpan::mark(compute, Lane::kFree, context_, layout.units[unit].name,
                                      layout.units[unit].value_bytes);
        if (done.ok()) done = values_->free(unit, std::exchange(runs_[unit].last_use, std::nullopt));
        break;
      case Kind::kOpen:
        doing = "opening gradients of", done = gradients_->open(unit, schedule_.gradient_offset(unit), compute);
        break;
      case Kind::kReduce: doing = "reducing gradients of", done = gradients_->reduce(unit, transfer, compute); break;
      case Kind::kRetire: gradients_->retire(unit, transfer); break;
      case Kind::kDiscard: doing = "discarding gradients of", done = gradients_->discard(unit, compute); break;
    }
    if (!done.ok()) return fail(std::move(done), doing, unit);
  }
  return {};
}

void ZeroEngine::Impl::show(UnitId unit, Pass pass) {
  std::vector<ParameterView>& views = runs_[unit].views;
  views.clear();
  for (const zero::ParameterPlace& place : layout.units[unit].parameters) {
    const zero::UnitBucket& bucket = layout.bucket(place, place.bucket);  // it continues in those that follow
    std::byte* gradient = pass == Pass::kForward || !place.trainable ? nullptr : gradients_->whole(place.owner, bucket);
    if (gradient != nullptr) gradient += place.offset * size_of(layout.gradient_dtype);
    views.push_back({values_->whole(place.owner, bucket) + place.offset * size_of(place.dtype), gradient, place.count,
                     place.dtype, layout.gradient_dtype});
  }
}

void ZeroEngine::Impl::note_compute(StreamRef compute, const Event& end) {
  for (auto& [handle, latest] : compute_ends_) {
    if (handle != compute.native()) continue;
    latest = end;
    return;
  }
  compute_ends_.emplace_back(compute.native(), end);
}

Status ZeroEngine::Impl::finish_reading() {
  for (const auto& [unused, end] : compute_ends_) SHARDCOMM_TRY(context_.stream.wait(end));
  return values_->finish_reading();
}

}  // namespace shardcomm
