// The C ABI of the ZeRO layer, over the public C++ headers.
#include <utility>
#include <vector>

#include "c_api_support.h"

using namespace shardcomm;
using namespace shardcomm::c_api;

namespace {

DType stored_dtype(int32_t dtype) {
  return dtype >= 0 && dtype < kDTypeCount ? static_cast<DType>(dtype) : static_cast<DType>(255);
}

Status too_small(const char* what) {
  return Status(Code::kInvalidArgument, std::string(what) + ".struct_size is too small");
}

Result<std::vector<UnitSpec>> to_units(const shardcomm_unit* units, size_t unit_count) {
  std::vector<UnitSpec> specs;
  for (size_t u = 0; u < unit_count; ++u) {
    const shardcomm_unit& unit = units[u];
    if (unit.struct_size < sizeof unit) return too_small("unit");
    SHARDCOMM_REQUIRE(unit.name);
    UnitSpec spec{unit.name, {}};
    for (size_t i = 0; i < unit.parameter_count; ++i) {
      const shardcomm_tensor& tensor = unit.parameters[i];
      if (tensor.struct_size < sizeof tensor) return too_small("tensor");
      SHARDCOMM_REQUIRE(tensor.name);
      if (tensor.dimensions != 0) SHARDCOMM_REQUIRE(tensor.shape);
      ParameterSpec parameter;
      parameter.name = tensor.name;
      parameter.shape.assign(tensor.shape, tensor.shape + tensor.dimensions);
      parameter.dtype = stored_dtype(tensor.dtype);
      parameter.trainable = tensor.trainable != 0;
      parameter.decay_factor = tensor.decay_factor;
      if (tensor.tied_to != nullptr) parameter.tied_to = tensor.tied_to;
      spec.parameters.push_back(std::move(parameter));
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

Result<Pass> to_pass(int32_t pass) {
  if (pass == 0) return Pass::kForward;
  if (pass == 1) return Pass::kBackward;
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

void shardcomm_zero_params_init(shardcomm_zero_params* params) {
  if (params == nullptr) return;
  const ZeroOptions defaults;
  *params = shardcomm_zero_params{sizeof *params,
                                  defaults.stage,
                                  defaults.prefetch_units,
                                  defaults.bucket_bytes,
                                  defaults.gathered_bytes_limit,
                                  defaults.free_after_forward ? 1 : 0,
                                  static_cast<int32_t>(defaults.gradient_dtype),
                                  defaults.mosaic ? 1 : 0};
}

shardcomm_code shardcomm_zero_create(shardcomm_comm* comm, const shardcomm_unit* units, size_t unit_count,
                                     const shardcomm_zero_params* params, shardcomm_zero** out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(comm);
    if (unit_count != 0) SHARDCOMM_REQUIRE(units);
    SHARDCOMM_REQUIRE(out);
    ZeroOptions options;
    if (params != nullptr) {
      if (params->struct_size < sizeof *params) return too_small("params");
      options.stage = params->stage;
      options.prefetch_units = params->prefetch_units;
      options.bucket_bytes = params->bucket_bytes;
      options.gathered_bytes_limit = params->gathered_bytes_limit;
      options.free_after_forward = params->free_after_forward != 0;
      options.gradient_dtype = stored_dtype(params->gradient_dtype);
      options.mosaic = params->mosaic != 0;
    }
    SHARDCOMM_TRY_ASSIGN(const auto specs, to_units(units, unit_count));
    return deliver(ZeroEngine::create(comm->comm, specs, options), out);
  });
}
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
    if (out->struct_size < sizeof *out) return too_small("out");
    const MemoryReport report = zero->engine.memory();
    *out = shardcomm_memory_report{.struct_size = sizeof *out,
                                   .parameter_bytes = report.parameter_bytes,
                                   .gradient_bytes = report.gradient_bytes,
                                   .optimizer_bytes = report.optimizer_bytes,
                                   .gathered_bytes = report.gathered_bytes,
                                   .unreduced_bytes = report.unreduced_bytes,
                                   .live_bytes = report.live_bytes,
                                   .peak_bytes = report.peak_bytes};
    return {};
  });
}

void shardcomm_adam_params_init(shardcomm_adam_params* params) {
  if (params == nullptr) return;
  const AdamWOptions defaults;
  *params = shardcomm_adam_params{sizeof *params, defaults.beta1, defaults.beta2, defaults.eps, defaults.weight_decay};
}

shardcomm_code shardcomm_adam_create(shardcomm_zero* zero, const shardcomm_adam_params* params, shardcomm_adam** out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(zero);
    SHARDCOMM_REQUIRE(out);
    AdamWOptions options;
    if (params != nullptr) {
      if (params->struct_size < sizeof *params) return too_small("params");
      options = {
          .beta1 = params->beta1, .beta2 = params->beta2, .eps = params->eps, .weight_decay = params->weight_decay};
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

shardcomm_code shardcomm_zero_save(shardcomm_zero* zero, shardcomm_adam* adam, const char* dir, uint64_t step,
                                   const char* trainer_state, int32_t keep) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(zero);
    SHARDCOMM_REQUIRE(adam);
    SHARDCOMM_REQUIRE(dir);
    return save_checkpoint(zero->engine, adam->adam, dir, step, trainer_state == nullptr ? "{}" : trainer_state, keep)
        .status();
  });
}

shardcomm_code shardcomm_zero_load(shardcomm_zero* zero, shardcomm_adam* adam, const char* path, uint64_t* step) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(zero);
    SHARDCOMM_REQUIRE(adam);
    SHARDCOMM_REQUIRE(path);
    SHARDCOMM_TRY_ASSIGN(const LoadedCheckpoint loaded, load_checkpoint(zero->engine, adam->adam, path));
    if (step != nullptr) *step = loaded.step;
    return {};
  });
}
