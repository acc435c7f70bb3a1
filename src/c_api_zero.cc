// The C ABI of the ZeRO engine and of AdamW; c_api_zero_create.cc has what an engine is made of.
#include <utility>

#include "c_api_support.h"

SHARDCOMM_GROWS(shardcomm_memory_report, peak_bytes, peak_bytes, "");
SHARDCOMM_GROWS(shardcomm_adam_params, weight_decay, weight_decay, "shardcomm_adam_params_init");

using namespace shardcomm;
using namespace shardcomm::c_api;

namespace {

shardcomm_adam_params default_adam_params() {
  const AdamWOptions defaults;
  return {sizeof(shardcomm_adam_params), defaults.beta1, defaults.beta2, defaults.eps, defaults.weight_decay};
}

Result<Pass> to_pass(int32_t pass) {
  if (pass == SHARDCOMM_FORWARD) return Pass::kForward;
  if (pass == SHARDCOMM_BACKWARD) return Pass::kBackward;
  return Status(Code::kInvalidArgument, "pass " + std::to_string(pass) + " is neither 0 (forward) nor 1 (backward)");
}

Result<const ShardPiece*> find_piece(const ZeroEngine& engine, size_t piece) {
  const auto pieces = engine.pieces();
  if (piece < pieces.size()) return &pieces[piece];
  return Status(Code::kInvalidArgument, "piece " + std::to_string(piece) + " of " + std::to_string(pieces.size()));
}

// One hook: the unit must exist before the engine is asked.
template <class Hook>
shardcomm_code hook(shardcomm_zero* zero, uint32_t unit, int32_t pass, shardcomm_stream compute, Hook&& call) noexcept {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(zero);
    if (unit >= zero->engine.units().size())
      return Status(Code::kInvalidArgument, "unit " + std::to_string(unit) + " does not exist");
    SHARDCOMM_TRY_ASSIGN(const Pass which, to_pass(pass));
    SHARDCOMM_TRY_ASSIGN(const StreamRef on, to_stream(compute));
    SHARDCOMM_TRY(std::exchange(zero->unreported, Status()));
    return call(zero->engine, which, on);
  });
}

}  // namespace

void shardcomm_zero_destroy(shardcomm_zero* zero) { delete zero; }

shardcomm_code shardcomm_zero_fill(shardcomm_zero* zero, shardcomm_fill_fn fill, void* user) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(zero);
    SHARDCOMM_REQUIRE(fill);
    return zero->engine.fill_parameters([&](UnitId unit, uint32_t parameter, size_t offset, std::span<float> values) {
      fill(user, unit, parameter, offset, values.data(), values.size());
    });
  });
}

shardcomm_code shardcomm_zero_before(shardcomm_zero* zero, uint32_t unit, int32_t pass, shardcomm_stream compute) {
  return hook(zero, unit, pass, compute,
              [&](ZeroEngine& engine, Pass which, StreamRef on) { return engine.before(unit, which, on); });
}
shardcomm_code shardcomm_zero_after(shardcomm_zero* zero, uint32_t unit, int32_t pass, shardcomm_stream compute) {
  return hook(zero, unit, pass, compute,
              [&](ZeroEngine& engine, Pass which, StreamRef on) { return engine.after(unit, which, on); });
}
shardcomm_code shardcomm_zero_finish_step(shardcomm_zero* zero, shardcomm_stream compute) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(zero);
    SHARDCOMM_TRY_ASSIGN(const StreamRef on, to_stream(compute));
    SHARDCOMM_TRY(std::exchange(zero->unreported, Status()));
    return zero->engine.finish_step(on);
  });
}
void shardcomm_zero_set_gradient_sync(shardcomm_zero* zero, int32_t on) {
  if (zero != nullptr) zero->engine.set_gradient_sync(on != 0);
}
void shardcomm_zero_zero_gradients(shardcomm_zero* zero) {
  if (zero == nullptr) return;
  Status zeroed = zero->engine.zero_gradients();
  if (zero->unreported.ok()) zero->unreported = std::move(zeroed);
}

shardcomm_code shardcomm_zero_begin_update(shardcomm_zero* zero) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(zero);
    SHARDCOMM_TRY(std::exchange(zero->unreported, Status()));
    return zero->engine.begin_update();
  });
}
shardcomm_code shardcomm_zero_publish_unit(shardcomm_zero* zero, uint32_t unit) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(zero);
    return zero->engine.publish(unit);
  });
}
shardcomm_code shardcomm_zero_publish(shardcomm_zero* zero) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(zero);
    return zero->engine.publish();
  });
}
shardcomm_code shardcomm_zero_synchronize(shardcomm_zero* zero, int64_t timeout_ms) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(zero);
    return zero->engine.synchronize(to_deadline(timeout_ms));
  });
}

shardcomm_code shardcomm_zero_parameter(const shardcomm_zero* zero, uint32_t unit, size_t index, shardcomm_view* out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(zero);
    SHARDCOMM_REQUIRE(out);
    if (unit >= zero->engine.units().size())
      return Status(Code::kInvalidArgument, "unit " + std::to_string(unit) + " does not exist");
    const UnitSpec& spec = zero->engine.units()[unit];
    if (index >= spec.parameters.size())
      return Status(Code::kInvalidArgument, "unit " + spec.name + " has no parameter " + std::to_string(index));
    const auto views = zero->engine.parameters(unit);
    if (views.empty())
      return Status(Code::kFailedPrecondition, "unit " + spec.name + " is whole only between before and after");
    const ParameterView& view = views[index];
    *out = shardcomm_view{.value = view.value,
                          .gradient = view.gradient,
                          .count = view.count,
                          .dtype = static_cast<int32_t>(view.dtype),
                          .gradient_dtype = static_cast<int32_t>(view.gradient_dtype)};
    return {};
  });
}

size_t shardcomm_zero_piece_count(const shardcomm_zero* zero) {
  return zero == nullptr ? 0 : zero->engine.pieces().size();
}

shardcomm_code shardcomm_zero_shard(const shardcomm_zero* zero, size_t piece, shardcomm_piece* out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(zero);
    SHARDCOMM_REQUIRE(out);
    SHARDCOMM_TRY_ASSIGN(const ShardPiece* found, find_piece(zero->engine, piece));
    *out = shardcomm_piece{.unit = found->unit,
                           .parameter = found->parameter,
                           .offset = found->offset,
                           .count = found->count,
                           .value = found->value,
                           .gradient = found->gradient};
    return {};
  });
}

size_t shardcomm_zero_optimized_count(const shardcomm_zero* zero) {
  return zero == nullptr ? 0 : zero->engine.optimized_count();
}

shardcomm_code shardcomm_zero_shard_state_offset(const shardcomm_zero* zero, size_t piece, size_t* offset) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(zero);
    SHARDCOMM_REQUIRE(offset);
    const auto pieces = zero->engine.pieces();
    if (piece >= pieces.size())
      return Status(Code::kInvalidArgument,
                    "piece " + std::to_string(piece) + " is out of range: there are " + std::to_string(pieces.size()));
    *offset = pieces[piece].state_offset;
    return {};
  });
}

shardcomm_code shardcomm_zero_shard_master(const shardcomm_zero* zero, size_t piece, float** master) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(zero);
    SHARDCOMM_REQUIRE(master);
    SHARDCOMM_TRY_ASSIGN(const ShardPiece* found, find_piece(zero->engine, piece));
    *master = found->master;
    return {};
  });
}

shardcomm_code shardcomm_zero_gradient_norm(shardcomm_zero* zero, double* norm) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(zero);
    SHARDCOMM_REQUIRE(norm);
    SHARDCOMM_TRY_ASSIGN(*norm, zero->engine.gradient_norm());
    return {};
  });
}

shardcomm_code shardcomm_zero_memory_report(const shardcomm_zero* zero, shardcomm_memory_report* out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(zero);
    SHARDCOMM_REQUIRE(out);
    const MemoryReport report = zero->engine.memory();
    return write_growing<shardcomm_memory_report>({.struct_size = 0,
                                                   .parameter_bytes = report.parameter_bytes,
                                                   .gradient_bytes = report.gradient_bytes,
                                                   .optimizer_bytes = report.optimizer_bytes,
                                                   .gathered_bytes = report.gathered_bytes,
                                                   .unreduced_bytes = report.unreduced_bytes,
                                                   .live_bytes = report.live_bytes,
                                                   .peak_bytes = report.peak_bytes},
                                                  out, "out");
  });
}

void shardcomm_zero_reset_peak(shardcomm_zero* zero) {
  if (zero != nullptr) zero->engine.reset_peak();
}

void shardcomm_adam_params_init_sized(shardcomm_adam_params* params, size_t struct_size) {
  init_sized(default_adam_params(), params, struct_size);
}
void(shardcomm_adam_params_init)(shardcomm_adam_params* params) { init_first(default_adam_params(), params); }

shardcomm_code shardcomm_adam_create(shardcomm_zero* zero, const shardcomm_adam_params* params, shardcomm_adam** out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(zero);
    SHARDCOMM_REQUIRE(out);
    AdamWOptions options;
    if (params != nullptr) {
      SHARDCOMM_TRY_ASSIGN(const auto read, read_growing(params, default_adam_params(), "params"));
      options = {.beta1 = read.beta1, .beta2 = read.beta2, .eps = read.eps, .weight_decay = read.weight_decay};
    }
    return deliver(AdamW::create(zero->engine, options), out);
  });
}
void shardcomm_adam_destroy(shardcomm_adam* adam) { delete adam; }

shardcomm_code shardcomm_adam_step(shardcomm_adam* adam, float learning_rate, float gradient_scale) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(adam);
    return adam->adam.step(learning_rate, gradient_scale);
  });
}
uint64_t shardcomm_adam_steps(const shardcomm_adam* adam) { return adam == nullptr ? 0 : adam->adam.steps(); }
