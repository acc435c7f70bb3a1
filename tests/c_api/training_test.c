/* What a foreign trainer needs around its steps: the launcher's place, an estimate before there are ranks, the peak of
   memory, and checkpoints with their path and its own state. Ranks are threads; the launcher's are processes. */
#include "tests/c_api/harness.h"

enum { kRanks = 2, kShape = 24, kUnits = 3 };

static const shardcomm_stream kHere = {0, 0, NULL};
static const size_t kShapes[1] = {kShape};
static char directory[] = "/tmp/shardcomm-c-api-training-XXXXXX";

/* The variables of torchrun; each process has its own. */
static void be_launched(test_rank* rank) {
  char number[16];
  shardcomm_launched_rank place;
  struct {
    shardcomm_launched_rank place;
    size_t later;
  } larger = {.place = {.struct_size = sizeof larger}, .later = 3};
  memset(&place, 0, sizeof place);
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  unsetenv("LOCAL_RANK");
  place.struct_size = sizeof place;
  CHECK_CODE(rank, shardcomm_launched_rank_from_env(&place), SHARDCOMM_UNAVAILABLE);
  snprintf(number, sizeof number, "%d", rank->rank + 4);
  setenv("RANK", number, 1);
  setenv("WORLD_SIZE", "7", 1);
  snprintf(number, sizeof number, "%d", rank->rank);
  setenv("LOCAL_RANK", number, 1);
  CHECK_OK(rank, shardcomm_launched_rank_from_env(&place));
  CHECK(rank, place.rank == rank->rank + 4 && place.world_size == 7 && place.local_rank == rank->rank);
  CHECK_OK(rank, shardcomm_launched_rank_from_env(&larger.place));
  CHECK(rank, larger.place.rank == rank->rank + 4 && larger.later == 0);
  place.struct_size = 0;
  CHECK_CODE(rank, shardcomm_launched_rank_from_env(&place), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_launched_rank_from_env(NULL), SHARDCOMM_INVALID_ARGUMENT);
}

typedef struct {
  shardcomm_tensor tensors[kUnits];
  shardcomm_unit units[kUnits];
} model;

static void make_model(model* m) {
  static const char* const kNames[kUnits] = {"h.0", "h.1", "h.2"};
  for (int u = 0; u < kUnits; ++u) {
    shardcomm_tensor_init(&m->tensors[u]);
    m->tensors[u].name = "weight";
    m->tensors[u].shape = kShapes;
    m->tensors[u].dimensions = 1;
    shardcomm_unit_init(&m->units[u]);
    m->units[u].name = kNames[u];
    m->units[u].parameters = &m->tensors[u];
    m->units[u].parameter_count = 1;
  }
}

static void fill(void* user, uint32_t unit, uint32_t parameter, size_t offset, float* values, size_t count) {
  (void)parameter;
  for (size_t i = 0; i < count; ++i) values[i] = *(const float*)user + (float)(100 * unit + offset + i);
}

static void step(test_rank* rank, shardcomm_zero* zero, shardcomm_adam* adam) {
  for (int32_t pass = SHARDCOMM_FORWARD; pass <= SHARDCOMM_BACKWARD; ++pass) {
    for (uint32_t i = 0; i < kUnits; ++i) {
      const uint32_t u = pass == SHARDCOMM_FORWARD ? i : kUnits - 1 - i;
      shardcomm_view view = {0};
      CHECK_OK(rank, shardcomm_zero_before(zero, u, pass, kHere));
      CHECK_OK(rank, shardcomm_zero_parameter(zero, u, 0, &view));
      for (size_t k = 0; view.gradient != NULL && k < view.count; ++k) ((float*)view.gradient)[k] += 1;
      CHECK_OK(rank, shardcomm_zero_after(zero, u, pass, kHere));
    }
  }
  CHECK_OK(rank, shardcomm_zero_finish_step(zero, kHere));
  CHECK_OK(rank, shardcomm_adam_step(adam, 0.25f, 1));
  shardcomm_zero_zero_gradients(zero);
}

static float first_value(test_rank* rank, shardcomm_zero* zero) {
  shardcomm_view view = {0};
  CHECK_OK(rank, shardcomm_zero_before(zero, 0, SHARDCOMM_FORWARD, kHere));
  CHECK_OK(rank, shardcomm_zero_parameter(zero, 0, 0, &view));
  const float value = view.value == NULL ? -1 : *(float*)view.value;
  CHECK_OK(rank, shardcomm_zero_after(zero, 0, SHARDCOMM_FORWARD, kHere));
  CHECK_OK(rank, shardcomm_zero_finish_step(zero, kHere));
  return value;
}

static shardcomm_zero_estimate estimate(test_rank* rank, const shardcomm_zero_params* params) {
  model m;
  shardcomm_zero_estimate estimate = {.struct_size = sizeof estimate};
  shardcomm_zero_estimate unsized = {0};
  char* formula = NULL;
  make_model(&m);
  CHECK_OK(rank, shardcomm_estimate_zero(m.units, kUnits, kRanks, params, &estimate, &formula));
  CHECK(rank, estimate.parameter_count == kUnits * kShape && estimate.bytes_per_step > 0);
  CHECK(rank, formula != NULL && strlen(formula) > 10);
  shardcomm_string_free(formula);
  CHECK_OK(rank, shardcomm_estimate_zero(m.units, kUnits, kRanks, NULL, &estimate, NULL));
  CHECK_CODE(rank, shardcomm_estimate_zero(m.units, kUnits, 0, NULL, &estimate, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_estimate_zero(m.units, kUnits, 1, NULL, &unsized, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_estimate_zero(m.units, kUnits, 1, NULL, NULL, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_OK(rank, shardcomm_estimate_zero(m.units, kUnits, kRanks, params, &estimate, NULL));
  return estimate;
}

static void test_memory(test_rank* rank, shardcomm_zero* zero, const shardcomm_zero_params* params) {
  shardcomm_memory_report report = {.struct_size = sizeof report};
  CHECK_OK(rank, shardcomm_zero_memory_report(zero, &report));
  CHECK(rank, report.peak_bytes > report.live_bytes);
  CHECK(rank, report.peak_bytes == estimate(rank, params).peak_bytes);
  shardcomm_zero_reset_peak(zero);
  CHECK_OK(rank, shardcomm_zero_memory_report(zero, &report));
  CHECK(rank, report.peak_bytes == report.live_bytes);
  shardcomm_zero_reset_peak(NULL);
}

static void test_checkpoints(test_rank* rank, shardcomm_comm* comm, shardcomm_zero* zero, shardcomm_adam* adam) {
  shardcomm_save_params save;
  shardcomm_load_params load;
  char* path = NULL;
  char* state = NULL;
  uint64_t at = 0;
  float start = -7;
  CHECK_OK(rank, shardcomm_checkpoint_newest(directory, &path));
  CHECK(rank, path == NULL);
  CHECK_OK(rank, shardcomm_barrier(comm, kHere, NULL)); /* every rank has looked */

  shardcomm_save_params_init(&save);
  save.adam = adam;
  save.step = 12;
  save.trainer_state = "{\"tokens\": 345}";
  CHECK_OK(rank, shardcomm_checkpoint_save(zero, directory, &save, &path));
  CHECK(rank, path != NULL && strncmp(path, directory, strlen(directory)) == 0);
  CHECK(rank, path != NULL && strstr(path, "/step-00000012") != NULL);
  char* newest = NULL;
  CHECK_OK(rank, shardcomm_checkpoint_newest(directory, &newest));
  CHECK(rank, newest != NULL && strcmp(newest, path) == 0);

  const float saved = first_value(rank, zero);
  CHECK_OK(rank, shardcomm_zero_fill(zero, fill, &start));
  CHECK(rank, first_value(rank, zero) == -7);
  shardcomm_load_params_init(&load);
  load.adam = adam;
  CHECK_OK(rank, shardcomm_checkpoint_load(zero, path, &load, &at, &state));
  CHECK(rank, at == 12 && state != NULL && strstr(state, "345") != NULL && first_value(rank, zero) == saved);
  CHECK_OK(rank, shardcomm_checkpoint_load(zero, path, &load, NULL, NULL));
  shardcomm_string_free(state);
  shardcomm_string_free(newest);

  /* What is refused writes no output. */
  char* untouched = path;
  save.step = 13;
  save.trainer_state = "not an object";
  CHECK_CODE(rank, shardcomm_checkpoint_save(zero, directory, &save, &untouched), SHARDCOMM_INVALID_ARGUMENT);
  save.trainer_state = NULL;
  save.reserved = 1;
  CHECK_CODE(rank, shardcomm_checkpoint_save(zero, directory, &save, &untouched), SHARDCOMM_INVALID_ARGUMENT);
  memset(&save, 0, sizeof save);
  CHECK_CODE(rank, shardcomm_checkpoint_save(zero, directory, &save, &untouched), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "shardcomm_save_params_init");
  CHECK_CODE(rank, shardcomm_checkpoint_save(zero, directory, NULL, &untouched), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_checkpoint_newest(NULL, &untouched), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_checkpoint_newest(directory, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_checkpoint_load(zero, NULL, &load, NULL, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK(rank, shardcomm_checkpoint_load(zero, "/nowhere", &load, &at, &untouched) != SHARDCOMM_OK);
  CHECK(rank, untouched == path && at == 12);
  shardcomm_string_free(path);
}

static void be_rank(test_rank* rank) {
  model m;
  shardcomm_zero_params params;
  shardcomm_adam_params adam_params;
  shardcomm_store* store = NULL;
  shardcomm_zero* zero = NULL;
  shardcomm_adam* adam = NULL;
  float start = 1;
  CHECK_OK(rank, shardcomm_store_open(rank->uri, &store));
  shardcomm_comm* comm = make_comm(rank, store, "timeout_ms=20000");
  shardcomm_store_close(store);
  make_model(&m);
  shardcomm_zero_params_init(&params);
  CHECK_OK(rank, shardcomm_zero_create(comm, m.units, kUnits, &params, &zero));
  shardcomm_adam_params_init(&adam_params);
  CHECK_OK(rank, shardcomm_adam_create(zero, &adam_params, &adam));
  if (zero == NULL || adam == NULL) return;
  CHECK_OK(rank, shardcomm_zero_fill(zero, fill, &start));
  step(rank, zero, adam);
  step(rank, zero, adam);
  test_memory(rank, zero, &params);
  test_checkpoints(rank, comm, zero, adam);
  shardcomm_adam_destroy(adam);
  shardcomm_zero_destroy(zero);
  shardcomm_comm_destroy(comm);
}

int main(void) {
  char command[128];
  if (mkdtemp(directory) == NULL) abort();
  int failures = run_processes(kRanks, "", be_launched);
  failures += run_threads(kRanks, "local://c-api-training", be_rank);
  snprintf(command, sizeof command, "rm -rf '%s'", directory);
  if (system(command) != 0) abort();
  if (failures != 0) fprintf(stderr, "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
