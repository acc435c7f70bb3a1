// The C ABI of checkpoints.
#include <vector>

#include "c_api_support.h"

SHARDCOMM_GROWS(shardcomm_named_state, count, count, "");
SHARDCOMM_GROWS(shardcomm_save_params, state_count, state_count, "shardcomm_save_params_init");
SHARDCOMM_GROWS(shardcomm_load_params, reserved, reserved, "shardcomm_load_params_init");

using namespace shardcomm;
using namespace shardcomm::c_api;

namespace {

Result<std::vector<NamedState>> to_states(const shardcomm_named_state* states, size_t count) {
  std::vector<NamedState> list;
  if (count == 0) return list;
  if (states == nullptr) return null_argument("states");
  const auto add = [&](const shardcomm_named_state& state, size_t) -> Status {
    if (state.name == nullptr) return null_argument("state.name");
    if (state.values == nullptr && state.count != 0) return null_argument("state.values");
    list.push_back({state.name, {state.values, state.count}});
    return {};
  };
  SHARDCOMM_TRY(for_each_growing(states, count, shardcomm_named_state{}, "state", add));
  return list;
}

Result<std::string> save(shardcomm_zero* zero, const char* dir, const shardcomm_save_params& params) {
  SHARDCOMM_REQUIRE(zero);
  SHARDCOMM_REQUIRE(dir);
  SHARDCOMM_TRY(check_reserved(params.reserved, "params.reserved"));
  SHARDCOMM_TRY_ASSIGN(auto states, to_states(params.states, params.state_count));
  return save_checkpoint(zero->engine, dir, params.step,
                         {.optimizer = params.adam == nullptr ? nullptr : &params.adam->adam,
                          .states = std::move(states),
                          .trainer_state = params.trainer_state == nullptr ? "{}" : params.trainer_state,
                          .keep = params.keep});
}

Result<LoadedCheckpoint> load(shardcomm_zero* zero, const char* path, const shardcomm_load_params& params) {
  SHARDCOMM_REQUIRE(zero);
  SHARDCOMM_REQUIRE(path);
  SHARDCOMM_TRY(check_reserved(params.reserved, "params.reserved"));
  SHARDCOMM_TRY_ASSIGN(auto states, to_states(params.states, params.state_count));
  return load_checkpoint(zero->engine, path,
                         {.optimizer = params.adam == nullptr ? nullptr : &params.adam->adam,
                          .states = std::move(states),
                          .ignore_other_states = params.ignore_other_states != 0});
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
    return save(zero, dir, params).status();
  });
}

shardcomm_code shardcomm_zero_load(shardcomm_zero* zero, shardcomm_adam* adam, const char* path, uint64_t* step) {
  return guarded([&]() -> Status {
    shardcomm_load_params params{};
    params.adam = adam;
    SHARDCOMM_TRY_ASSIGN(const LoadedCheckpoint loaded, load(zero, path, params));
    if (step != nullptr) *step = loaded.step;
    return {};
  });
}
