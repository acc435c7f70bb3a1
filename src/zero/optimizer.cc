// The public AdamW: moments over the pieces of an engine, and the update of all of them.
#include "shardcomm/optimizer.h"

#include <fmt/format.h>

#include "zero/adam.h"
#include "zero/engine_impl.h"

namespace shardcomm {

struct AdamW::Impl {
  ~Impl() { account->remove(zero::Purpose::kOptimizer, moments.size_bytes()); }

  ZeroEngine::Impl& engine;
  const std::shared_ptr<zero::MemoryAccount> account;
  const AdamWOptions options;
  zero::Buffer moments;  // all of m, then all of v
  std::vector<MomentPiece> pieces;
  uint64_t steps = 0;

  void update(size_t piece, const zero::AdamConstants& constants);
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

}  // namespace

AdamW::AdamW(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
AdamW::AdamW(AdamW&&) noexcept = default;
AdamW& AdamW::operator=(AdamW&&) noexcept = default;
AdamW::~AdamW() = default;

Result<AdamW> AdamW::create(ZeroEngine& engine, const AdamWOptions& options) {
  SHARDCOMM_TRY(check_options(options));
  ZeroEngine::Impl& e = *engine.impl_;
  const size_t bytes = zero::footprint_of(e.layout).moment_bytes;
  SHARDCOMM_TRY_ASSIGN(zero::Buffer moments, zero::Buffer::create(bytes, "moments of AdamW"));
  e.account->add(zero::Purpose::kOptimizer, bytes);
  std::unique_ptr<Impl> impl(new Impl{e, e.account, options, std::move(moments), {}, 0});
  float* m = impl->moments.floats();
  float* v = m + bytes / sizeof(float) / 2;
  for (size_t i = 0; i < e.pieces.size(); ++i) {
    const auto& [offset, master] = e.piece_indices[i];
    MomentPiece piece{};
    if (e.pieces[i].gradient != nullptr) {
      piece = {master != nullptr ? master : reinterpret_cast<float*>(e.pieces[i].value), m + offset, v + offset};
    }
    impl->pieces.push_back(piece);
  }
  return AdamW(std::move(impl));
}

void AdamW::Impl::update(size_t piece, const zero::AdamConstants& constants) {
  const ShardPiece& shard = engine.pieces[piece];
  const MomentPiece& moment = pieces[piece];
  if (shard.gradient == nullptr) return;
  const ParameterSpec& spec = engine.specs[shard.unit].parameters[shard.parameter];
  zero::adam_update(constants, options.weight_decay * spec.decay_factor, shard.gradient, moment.m, moment.v,
                    moment.master, shard.count);
  if (spec.dtype == DType::kBF16)
    zero::round_to_bf16(moment.master, reinterpret_cast<uint16_t*>(shard.value), shard.count);
}

Status AdamW::step(float learning_rate, float gradient_scale) {
  ZeroEngine::Impl& e = impl_->engine;
  SHARDCOMM_TRY(e.check_gradients_final("AdamW::step"));
  SHARDCOMM_TRY(e.prepare_to_change_values());
  const auto constants = zero::adam_constants(impl_->options, ++impl_->steps, learning_rate, gradient_scale);
  const bool publishes = e.options.stage == 1 || e.options.stage == 2;
  size_t piece = 0;
  for (UnitId unit = 0; unit < e.layout.units.size(); ++unit) {
    for (; piece < e.pieces.size() && e.pieces[piece].unit == unit; ++piece) impl_->update(piece, constants);
    if (!publishes) continue;
    if (Status published = e.values->publish(unit); !published.ok())
      return e.fail(std::move(published), "publishing", unit);
  }
  e.gradients->zero();
  return {};
}

uint64_t AdamW::steps() const noexcept { return impl_->steps; }
void AdamW::set_steps(uint64_t steps) noexcept { impl_->steps = steps; }
std::span<const MomentPiece> AdamW::pieces() const noexcept { return impl_->pieces; }
const AdamWOptions& AdamW::options() const noexcept { return impl_->options; }

}  // namespace shardcomm
