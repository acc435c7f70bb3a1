// The C ABI of checkpoints.
#include "c_api_support.h"

SHARDCOMM_GROWS(shardcomm_save_params, reserved, reserved, "shardcomm_save_params_init");
SHARDCOMM_GROWS(shardcomm_load_params, adam, adam, "shardcomm_load_params_init");

using namespace shardcomm;
using namespace shardcomm::c_api;

namespace {

Result<std::string> save(shardcomm_zero* zero, const char* dir, const shardcomm_save_params& params) {
  SHARDCOMM_REQUIRE(zero);
  SHARDCOMM_REQUIRE(dir);
  if (params.adam == nullptr) return null_argument("adam");
  SHARDCOMM_TRY(check_reserved(params.reserved, "params.reserved"));
  const char* state = params.trainer_state == nullptr ? "{}" : params.trainer_state;
  return save_checkpoint(zero->engine, params.adam->adam, dir, params.step, state, params.keep);
}

Result<LoadedCheckpoint> load(shardcomm_zero* zero, const char* path, const shardcomm_load_params& params) {
  SHARDCOMM_REQUIRE(zero);
  SHARDCOMM_REQUIRE(path);
  if (params.adam == nullptr) return null_argument("adam");
  return load_checkpoint(zero->engine, params.adam->adam, path);
}

}  // namespace

void shardcomm_save_params_init_sized(shardcomm_save_params* params, size_t struct_size) {
  init_sized(shardcomm_save_params{}, params, struct_size);
}

shardcomm_code shardcomm_checkpoint_save(shardcomm_zero* zero, const char* dir, const shardcomm_save_params* params,
                                         char** path) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(params);
    SHARDCOMM_TRY_ASSIGN(const auto read, read_growing(params, shardcomm_save_params{}, "params"));
    SHARDCOMM_TRY_ASSIGN(const std::string saved, save(zero, dir, read));
    return path == nullptr ? Status() : give_text(saved, path);
  });
}

void shardcomm_load_params_init_sized(shardcomm_load_params* params, size_t struct_size) {
  init_sized(shardcomm_load_params{}, params, struct_size);
}

shardcomm_code shardcomm_checkpoint_load(shardcomm_zero* zero, const char* path, const shardcomm_load_params* params,
                                         uint64_t* step, char** trainer_state) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(params);
    SHARDCOMM_TRY_ASSIGN(const auto read, read_growing(params, shardcomm_load_params{}, "params"));
    SHARDCOMM_TRY_ASSIGN(const LoadedCheckpoint loaded, load(zero, path, read));
    if (trainer_state != nullptr) SHARDCOMM_TRY(give_text(loaded.trainer_state, trainer_state));
    if (step != nullptr) *step = loaded.step;
    return {};
  });
}

shardcomm_code shardcomm_checkpoint_newest(const char* dir, char** path) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(dir);
    SHARDCOMM_REQUIRE(path);
    SHARDCOMM_TRY_ASSIGN(const std::string newest, newest_checkpoint(dir));
    if (!newest.empty()) return give_text(newest, path);
    *path = nullptr;
    return {};
  });
}

shardcomm_code shardcomm_zero_save(shardcomm_zero* zero, shardcomm_adam* adam, const char* dir, uint64_t step,
                                   const char* trainer_state, int32_t keep) {
  return guarded([&]() -> Status {
    shardcomm_save_params params{};
    params.adam = adam;
    params.trainer_state = trainer_state;
    params.step = step;
    params.keep = keep;
    SHARDCOMM_REQUIRE(adam);
    return save(zero, dir, params).status();
  });
}

shardcomm_code shardcomm_zero_load(shardcomm_zero* zero, shardcomm_adam* adam, const char* path, uint64_t* step) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(adam);
    shardcomm_load_params params{};
    params.adam = adam;
    SHARDCOMM_TRY_ASSIGN(const LoadedCheckpoint loaded, load(zero, path, params));
    if (step != nullptr) *step = loaded.step;
    return {};
  });
}
