// The public AdamW: moments over the pieces of an engine, and the update of all of them. It uses nothing of the engine
// but its public functions, as any optimizer of a user does.
#include "shardcomm/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/kernels.h"
#include "zero/adam.h"
#include "zero/buffer.h"

namespace shardcomm {

struct AdamW::Impl {
  const ZeroEngine::Ref engine;
  const AdamWOptions options;
  const zero::Buffer moments;  // all of m, then all of v
  const std::shared_ptr<const void> counted;
  std::vector<MomentPiece> pieces;
  uint64_t steps = 0;

  Status update(size_t piece, const kernels::AdamConstants& constants) const;
  std::span<float> moments_of(size_t order) const noexcept {
    const size_t count = moments.size_bytes() / (2 * sizeof(float));
    return {moments.floats() + order * count, count};
  }
};

namespace {

Status check_options(const AdamWOptions& options) {
  const auto in_unit = [](float beta) { return beta >= 0 && beta < 1; };
  if (!in_unit(options.beta1) || !in_unit(options.beta2)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("AdamW: beta1 {} and beta2 {} must be in [0, 1)", options.beta1, options.beta2));
  }
  if (!(options.eps >= 0) || !(options.weight_decay >= 0)) {
    return Status(Code::kInvalidArgument, fmt::format("AdamW: eps {} and weight_decay {} must not be negative",
                                                      options.eps, options.weight_decay));
  }
  return {};
}

Status check_trainable(std::span<const UnitSpec> units) {
  const auto has_trainable = [](const UnitSpec& unit) {
    return std::ranges::any_of(unit.parameters, &ParameterSpec::trainable);
  };
  if (std::ranges::any_of(units, has_trainable)) return {};
  return Status(Code::kInvalidArgument,
                "AdamW: every parameter of the engine is frozen, so there is nothing to optimize; make some trainable "
                "(ParameterSpec::trainable; in C, shardcomm_tensor_init sets it, and a zeroed shardcomm_tensor is "
                "frozen)");
}

}  // namespace

AdamW::AdamW(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
AdamW::AdamW(AdamW&&) noexcept = default;
AdamW& AdamW::operator=(AdamW&&) noexcept = default;
AdamW::~AdamW() = default;

Result<AdamW> AdamW::create(ZeroEngine& engine, const AdamWOptions& options) {
  SHARDCOMM_TRY(check_options(options));
  SHARDCOMM_TRY(check_trainable(engine.units()));
  const size_t count = engine.optimized_count();
  const size_t bytes = 2 * count * sizeof(float);
  SHARDCOMM_TRY_ASSIGN(zero::Buffer moments, zero::Buffer::create(bytes, "moments of AdamW"));
  float* m = moments.floats();
  float* v = m + count;
  std::vector<MomentPiece> pieces;
  for (const ShardPiece& piece : engine.pieces()) {
    const bool trainable = piece.gradient != nullptr;
    pieces.push_back(trainable ? MomentPiece{piece.master, m + piece.state_offset, v + piece.state_offset}
                               : MomentPiece{});
  }
  return AdamW(std::unique_ptr<Impl>(new Impl{.engine = engine.ref(),
                                              .options = options,
                                              .moments = std::move(moments),
                                              .counted = engine.count_optimizer_bytes(bytes),
                                              .pieces = std::move(pieces)}));
}

Status AdamW::Impl::update(size_t piece, const kernels::AdamConstants& constants) const {
  const ShardPiece& shard = engine->pieces()[piece];
  if (shard.gradient == nullptr) return {};
  const ParameterSpec& spec = engine->units()[shard.unit].parameters[shard.parameter];
  const kernels::AdamLaunch launch{.constants = constants,
                                   .decay = options.weight_decay * spec.decay_factor,
                                   .gradient = shard.gradient,
                                   .m = pieces[piece].m,
                                   .v = pieces[piece].v,
                                   .master = shard.master,
                                   .count = shard.count};
  return kernels::launch(launch, StreamRef::caller());
}

// Each unit is published as soon as it is updated, so that its gather runs beside the update of the next. One that is
// refused does not keep the others from the peers; the last publish() gives the error again.
Status AdamW::step(float learning_rate, float gradient_scale) {
  ZeroEngine& engine = *impl_->engine;
  SHARDCOMM_TRY(engine.begin_update());
  const auto constants = zero::adam_constants(impl_->options, ++impl_->steps, learning_rate, gradient_scale);
  const auto pieces = engine.pieces();
  size_t piece = 0;
  for (UnitId unit = 0; unit < engine.units().size(); ++unit) {
    for (; piece < pieces.size() && pieces[piece].unit == unit; ++piece) SHARDCOMM_TRY(impl_->update(piece, constants));
    static_cast<void>(engine.publish(unit));
  }
  SHARDCOMM_TRY(engine.publish());
  return engine.zero_gradients();
}

uint64_t AdamW::steps() const noexcept { return impl_->steps; }
void AdamW::set_steps(uint64_t steps) noexcept { impl_->steps = steps; }
std::span<const MomentPiece> AdamW::pieces() const noexcept { return impl_->pieces; }
std::span<float> AdamW::first_moments() const noexcept { return impl_->moments_of(0); }
std::span<float> AdamW::second_moments() const noexcept { return impl_->moments_of(1); }
const AdamWOptions& AdamW::options() const noexcept { return impl_->options; }

}  // namespace shardcomm
