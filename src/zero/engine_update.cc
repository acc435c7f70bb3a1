// The engine between steps: parameters are set or updated and published, gradients are measured and zeroed.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "zero/agree.h"
#include "zero/engine_impl.h"

namespace shardcomm {

Status ZeroEngine::Impl::fill_parameters(const Fill& fill) {
  SHARDCOMM_TRY(usable());
  if (updating_) SHARDCOMM_TRY(give_unpublished_values());
  SHARDCOMM_TRY(prepare_to_change_values("fill_parameters"));
  for (UnitId u = 0; u < layout.units.size(); ++u) {
    const auto& parameters = layout.units[u].parameters;
    for (uint32_t p = 0; p < parameters.size(); ++p) {
      if (parameters[p].tied) continue;
      const auto fill_one = [&](size_t offset, std::span<float> values) { fill(u, p, offset, values); };
      for (const uint32_t b : parameters[p].buckets()) SHARDCOMM_TRY(fill_run(parameters[p], b, fill_one));
    }
    seals_.seal(u);
  }
  updating_ = false;
  return {};
}

Status ZeroEngine::Impl::fill_run(const zero::ParameterPlace& place, uint32_t bucket, const FillOne& fill) {
  constexpr size_t kMostAtOnce = 64 * 1024;
  const auto held = held_run(place, bucket);
  if (!held) return {};
  if (place.dtype == DType::kF32) {
    auto* values = reinterpret_cast<float*>(value_at(place, bucket, held->bucket_offset));
    fill(held->parameter_offset, {values, held->count});
    return {};
  }
  std::vector<float> wide;
  for (size_t done = 0; done < held->count; done += wide.size()) {
    wide.resize(std::min(kMostAtOnce, held->count - done));
    fill(held->parameter_offset + done, wide);
    SHARDCOMM_TRY(round_filled(place, bucket, held->bucket_offset + done, wide));
  }
  return {};
}

// Values of all that this rank holds, masters of what it optimizes.
Status ZeroEngine::Impl::round_filled(const zero::ParameterPlace& place, uint32_t bucket, size_t bucket_offset,
                                      std::span<const float> wide) {
  const kernels::CastLaunch cast{.source = wide.data(),
                                 .source_dtype = DType::kF32,
                                 .target = value_at(place, bucket, bucket_offset),
                                 .target_dtype = DType::kBF16,
                                 .count = wide.size()};
  SHARDCOMM_TRY(kernels::launch(cast, StreamRef::caller()));
  const auto owned = owned_run(place, bucket);
  if (!place.trainable || !owned) return {};
  const size_t begin = std::max(bucket_offset, owned->bucket_offset);
  const size_t end = std::min(bucket_offset + wide.size(), owned->bucket_offset + owned->count);
  if (begin < end) std::copy_n(wide.data() + (begin - bucket_offset), end - begin, master_at(place, bucket, begin));
  return {};
}

Status ZeroEngine::Impl::begin_update() {
  constexpr std::string_view kOperation = "begin_update";
  SHARDCOMM_TRY(usable());
  if (updating_) return refuse(kOperation, "an update is open already", "call publish() first");
  SHARDCOMM_TRY(check_gradients_final(kOperation));
  SHARDCOMM_TRY(prepare_to_change_values(kOperation));
  for (UnitRun& run : runs_) run.published = false;
  update_error_ = {};
  if (Status touched = check_untouched(kOperation); !touched.ok()) {
    SHARDCOMM_TRY(give_unpublished_values());
    return touched;
  }
  updating_ = true;
  return {};
}

Status ZeroEngine::Impl::publish(UnitId unit) {
  SHARDCOMM_TRY(usable());
  const auto operation = [&] { return fmt::format("publish({})", unit_name(unit)); };
  if (!updating_) return refuse(operation(), "no update is open", "call begin_update() before masters are written");
  if (unit >= runs_.size()) {
    return Status(Code::kInvalidArgument, fmt::format("publish: unit {} of {}", unit, runs_.size()));
  }
  if (runs_[unit].published) return refuse(operation(), "it has been published in this update", "publish it once");
  Status written = check_written_rightly(unit);
  if (written.ok()) {
    SHARDCOMM_TRY(masters_->round(unit));
    seals_.seal(unit);
  } else if (update_error_.ok()) {
    update_error_ = written;
  }
  SHARDCOMM_TRY(give_values(unit));
  return written;
}

Status ZeroEngine::Impl::give_values(UnitId unit) {
  runs_[unit].published = true;
  if (!layout.stage.publishes()) return {};
  if (Status published = values_->publish(unit); !published.ok()) return fail(std::move(published), "publishing", unit);
  return {};
}

Status ZeroEngine::Impl::give_unpublished_values() {
  for (UnitId unit = 0; unit < runs_.size(); ++unit) {
    if (!runs_[unit].published) SHARDCOMM_TRY(give_values(unit));
  }
  return {};
}

Status ZeroEngine::Impl::publish() {
  SHARDCOMM_TRY(usable());
  if (!updating_) return refuse("publish", "no update is open", "call begin_update() before masters are written");
  for (UnitId unit = 0; unit < runs_.size(); ++unit) {
    if (runs_[unit].published) continue;
    if (Status done = publish(unit); !runs_[unit].published) return done;
    SHARDCOMM_TRY(usable());
  }
  updating_ = false;
  return std::exchange(update_error_, Status());
}

Status ZeroEngine::Impl::synchronize(Deadline deadline) {
  constexpr std::string_view kOperation = "synchronize";
  SHARDCOMM_TRY(usable());
  if (updating_) return refuse(kOperation, "an update is open, whose values are not complete", "call publish() first");
  SHARDCOMM_TRY(await_in_flight(deadline));
  return check_untouched(kOperation);
}

Status ZeroEngine::Impl::zero_gradients() {
  SHARDCOMM_TRY(usable());
  if (const std::string open = schedule_.open_unit(); !open.empty()) {
    return refuse("zero_gradients", fmt::format("unit {} is still between before and after", open),
                  "call after() first");
  }
  std::vector<zero::Action> actions;
  schedule_.discard_gradients(actions);
  SHARDCOMM_TRY(carry_out(actions, StreamRef::caller()));
  const Deadline deadline = zero::operation_deadline(comm);
  Status done;
  for (const auto& [unused, end] : compute_ends_) {
    if (done.ok()) done = end.synchronize(deadline);
  }
  if (done.ok()) done = gradients_->synchronize(deadline);
  if (done.ok()) done = comm.health();
  if (!done.ok()) return failed_ = done.context("finishing reductions before gradients are zeroed");
  return gradients_->zero();
}

Result<double> ZeroEngine::Impl::gradient_norm() {
  SHARDCOMM_TRY(usable());
  SHARDCOMM_TRY(check_gradients_final("gradient_norm"));
  SHARDCOMM_TRY(quiesce());
  const StreamRef caller = StreamRef::caller();
  // Each element on one rank only, also where all ranks have all sums.
  std::vector<std::span<const float>> parts;
  for (UnitId u = 0; u < layout.units.size(); ++u) {
    const auto& buckets = layout.units[u].buckets;
    for (uint32_t b = 0; b < buckets.size(); ++b) {
      if (!buckets[b].trainable) continue;
      const size_t begin = layout.stage.shards_updates ? 0 : context_.rank() * buckets[b].shard_count;
      parts.emplace_back(gradients_->sum(u, b) + begin, buckets[b].shard_count);
    }
  }
  uint32_t own_largest = 0, largest = 0;
  for (const auto& part : parts) {
    SHARDCOMM_TRY(kernels::launch(kernels::LargestMagnitudeLaunch{part.data(), part.size(), &own_largest}, caller));
  }
  const AllReduceArgs find_largest{&own_largest, &largest, 1, DType::kU32, ReduceOp::kMax, "gradient norm"};
  SHARDCOMM_TRY(zero::finish(comm.all_reduce(find_largest, caller), comm));
  kernels::SquareSum own{}, sum{};
  for (const auto& part : parts) {
    SHARDCOMM_TRY(kernels::launch(kernels::SquareSumLaunch{part.data(), part.size(), largest, &own}, caller));
  }
  const AllReduceArgs add_up{own.data(), sum.data(), own.size(), DType::kU64, ReduceOp::kSum, "gradient norm"};
  SHARDCOMM_TRY(zero::finish(comm.all_reduce(add_up, caller), comm));
  return kernels::norm_of(sum, largest);
}

Status ZeroEngine::Impl::check_gradients_final(std::string_view operation) const {
  if (const std::string open = schedule_.open_unit(); !open.empty()) {
    return refuse(operation, fmt::format("unit {} is still between before and after", open),
                  "call after() and finish_step() first");
  }
  if (in_step_) {
    return refuse(operation, "gradients are not final before finish_step() has ended the step",
                  "call finish_step() first");
  }
  if (const std::string waiting = schedule_.unreduced_unit(); !waiting.empty()) {
    return refuse(operation, fmt::format("gradients of unit {} have not been reduced", waiting),
                  "finish a step with gradient sync on, or discard them by zero_gradients()");
  }
  return {};
}

Status ZeroEngine::Impl::check_written_rightly(UnitId unit) const {
  if (seals_.intact_in_update(unit)) return {};
  return refuse(fmt::format("publish({})", unit_name(unit)),
                "values that are not their own masters (bf16, or frozen) have been written",
                "write ShardPiece::master only, of which publish() makes the values; fill_parameters() or "
                "load_checkpoint() sets them again");
}

Status ZeroEngine::Impl::check_untouched(std::string_view operation) const {
  for (UnitId unit = 0; unit < layout.units.size(); ++unit) {
    if (!seals_.intact(unit)) return written_outside(operation, unit);
  }
  return {};
}

Status ZeroEngine::Impl::written_outside(std::string_view operation, UnitId unit) const {
  return refuse(operation, fmt::format("parameters of unit {} have been written outside an update", unit_name(unit)),
                "write ShardPiece::master between begin_update() and publish(); fill_parameters() or load_checkpoint() "
                "sets them again");
}

Status ZeroEngine::Impl::await_in_flight(Deadline deadline) {
  constexpr std::string_view kDoing = "finishing what a ZeRO engine has in flight";
  Status done;
  for (const auto& [unused, end] : compute_ends_) {
    if (done.ok()) done = end.synchronize(deadline);
  }
  if (done.ok()) done = stream_.ref().synchronize(deadline);
  if (!done.ok()) return done.context(kDoing);
  if (Status health = comm.health(); !health.ok()) return failed_ = health.context(kDoing);
  compute_ends_.clear();
  return {};
}

Status ZeroEngine::Impl::quiesce() {
  SHARDCOMM_TRY(usable());
  Status done = await_in_flight(zero::operation_deadline(comm));
  return done.ok() ? done : failed_ = done;
}

Status ZeroEngine::Impl::prepare_to_change_values(std::string_view operation) {
  if (const std::string open = schedule_.open_unit(); !open.empty()) {
    return refuse(operation, fmt::format("unit {} is still between before and after", open), "call after() first");
  }
  std::vector<zero::Action> actions;
  schedule_.drop_gathered(actions);
  SHARDCOMM_TRY(carry_out(actions, StreamRef::caller()));
  SHARDCOMM_TRY(quiesce());
  values_->trim();
  return {};
}

}  // namespace shardcomm
