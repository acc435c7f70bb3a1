// The C ABI of what a ZeRO engine is made of: units of tensors, parameters of the engine, and the estimate of both.
#include <utility>
#include <vector>

#include "c_api_support.h"

SHARDCOMM_GROWS(shardcomm_tensor, tied_to, tied_to, "shardcomm_tensor_init");
SHARDCOMM_GROWS(shardcomm_unit, parameter_count, parameter_count, "shardcomm_unit_init");
SHARDCOMM_GROWS(shardcomm_zero_params, mosaic, reserved, "shardcomm_zero_params_init");
SHARDCOMM_GROWS(shardcomm_zero_estimate, parameter_count, parameter_count, "");

using namespace shardcomm;
using namespace shardcomm::c_api;

namespace {

shardcomm_tensor default_tensor() {
  const ParameterSpec defaults;
  shardcomm_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.dtype = static_cast<int32_t>(defaults.dtype);
  tensor.trainable = defaults.trainable ? 1 : 0;
  tensor.decay_factor = defaults.decay_factor;
  return tensor;
}

shardcomm_unit default_unit() {
  shardcomm_unit unit{};
  unit.struct_size = sizeof unit;
  return unit;
}

shardcomm_zero_params default_zero_params() {
  const ZeroOptions defaults;
  return {.struct_size = sizeof(shardcomm_zero_params),
          .stage = defaults.stage,
          .prefetch_units = defaults.prefetch_units,
          .bucket_bytes = defaults.bucket_bytes,
          .gathered_bytes_limit = defaults.gathered_bytes_limit,
          .free_after_forward = defaults.free_after_forward ? 1 : 0,
          .gradient_dtype = static_cast<int32_t>(defaults.gradient_dtype),
          .mosaic = defaults.mosaic ? 1 : 0,
          .padding = 0,
          .poison_freed = defaults.poison_freed ? 1 : 0,
          .reserved = 0};
}

Result<ParameterSpec> to_parameter(const shardcomm_tensor& tensor) {
  SHARDCOMM_REQUIRE(tensor.name);
  if (tensor.dimensions != 0) SHARDCOMM_REQUIRE(tensor.shape);
  ParameterSpec parameter;
  parameter.name = tensor.name;
  parameter.shape.assign(tensor.shape, tensor.shape + tensor.dimensions);
  parameter.dtype = to_dtype(tensor.dtype);
  parameter.trainable = tensor.trainable != 0;
  parameter.decay_factor = tensor.decay_factor;
  if (tensor.tied_to != nullptr) parameter.tied_to = tensor.tied_to;
  return parameter;
}

Result<UnitSpec> to_unit(const shardcomm_unit& unit) {
  SHARDCOMM_REQUIRE(unit.name);
  if (unit.parameter_count != 0) SHARDCOMM_REQUIRE(unit.parameters);
  UnitSpec spec{unit.name, {}};
  const auto add = [&](const shardcomm_tensor& tensor, size_t) -> Status {
    SHARDCOMM_TRY_ASSIGN(auto parameter, to_parameter(tensor));
    spec.parameters.push_back(std::move(parameter));
    return {};
  };
  SHARDCOMM_TRY(for_each_growing(unit.parameters, unit.parameter_count, default_tensor(), "tensor", add));
  return spec;
}

Result<std::vector<UnitSpec>> to_units(const shardcomm_unit* units, size_t unit_count) {
  if (unit_count != 0) SHARDCOMM_REQUIRE(units);
  std::vector<UnitSpec> specs;
  const auto add = [&](const shardcomm_unit& unit, size_t) -> Status {
    SHARDCOMM_TRY_ASSIGN(auto spec, to_unit(unit));
    specs.push_back(std::move(spec));
    return {};
  };
  SHARDCOMM_TRY(for_each_growing(units, unit_count, default_unit(), "unit", add));
  return specs;
}

Result<ZeroOptions> to_zero_options(const shardcomm_zero_params* given) {
  ZeroOptions options;
  if (given == nullptr) return options;
  SHARDCOMM_TRY_ASSIGN(const auto params, read_growing(given, default_zero_params(), "params"));
  SHARDCOMM_TRY(check_reserved(params.reserved, "params.reserved"));
  options.stage = params.stage;
  options.prefetch_units = params.prefetch_units;
  options.bucket_bytes = params.bucket_bytes;
  options.gathered_bytes_limit = params.gathered_bytes_limit;
  options.free_after_forward = params.free_after_forward != 0;
  options.gradient_dtype = to_dtype(params.gradient_dtype);
  options.mosaic = params.mosaic != 0;
  options.poison_freed = params.poison_freed != 0;
  return options;
}

}  // namespace

void shardcomm_tensor_init_sized(shardcomm_tensor* tensor, size_t struct_size) {
  init_sized(default_tensor(), tensor, struct_size);
}
void shardcomm_unit_init_sized(shardcomm_unit* unit, size_t struct_size) {
  init_sized(default_unit(), unit, struct_size);
}
void shardcomm_zero_params_init_sized(shardcomm_zero_params* params, size_t struct_size) {
  init_sized(default_zero_params(), params, struct_size);
}
void(shardcomm_zero_params_init)(shardcomm_zero_params* params) { init_first(default_zero_params(), params); }

shardcomm_code shardcomm_zero_create(shardcomm_comm* comm, const shardcomm_unit* units, size_t unit_count,
                                     const shardcomm_zero_params* params, shardcomm_zero** out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(comm);
    SHARDCOMM_REQUIRE(out);
    SHARDCOMM_TRY_ASSIGN(const ZeroOptions options, to_zero_options(params));
    SHARDCOMM_TRY_ASSIGN(const auto specs, to_units(units, unit_count));
    return deliver(ZeroEngine::create(comm->comm, specs, options), out);
  });
}

shardcomm_code shardcomm_estimate_zero(const shardcomm_unit* units, size_t unit_count, int32_t world_size,
                                       const shardcomm_zero_params* params, shardcomm_zero_estimate* out,
                                       char** formula) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(out);
    SHARDCOMM_TRY_ASSIGN(const ZeroOptions options, to_zero_options(params));
    SHARDCOMM_TRY_ASSIGN(const auto specs, to_units(units, unit_count));
    SHARDCOMM_TRY_ASSIGN(const ZeroEstimate estimate, estimate_zero(specs, world_size, options));
    SHARDCOMM_TRY(write_growing<shardcomm_zero_estimate>({.struct_size = 0,
                                                          .peak_bytes = estimate.peak_bytes,
                                                          .bytes_per_step = estimate.bytes_per_step,
                                                          .parameter_count = estimate.parameter_count},
                                                         out, "out"));
    return formula == nullptr ? Status() : give_text(estimate.formula, formula);
  });
}
