/* Checkpoints of parameters alone, and with the states of an optimizer of one's own, from C. */
#include "tests/c_api/harness.h"

enum { kRows = 30, kColumns = 7 };

static const size_t kShape[] = {kRows, kColumns};

static void fill(void* user, uint32_t unit, uint32_t parameter, size_t offset, float* values, size_t count) {
  for (size_t i = 0; i < count; ++i) values[i] = *(const float*)user * (float)(1 + unit + parameter + offset + i);
}

static shardcomm_zero* make_zero(test_rank* rank, shardcomm_comm* comm, int32_t trainable) {
  shardcomm_tensor tensor;
  shardcomm_unit unit;
  shardcomm_zero* zero = NULL;
  float scale = 1;
  shardcomm_tensor_init(&tensor);
  tensor.name = "w";
  tensor.shape = kShape;
  tensor.dimensions = 2;
  tensor.trainable = trainable;
  shardcomm_unit_init(&unit);
  unit.name = "layer";
  unit.parameters = &tensor;
  unit.parameter_count = 1;
  CHECK_OK(rank, shardcomm_zero_create(comm, &unit, 1, NULL, &zero));
  CHECK_OK(rank, shardcomm_zero_fill(zero, fill, &scale));
  return zero;
}

/* values[state_offset + i] of each piece = 1000 + its element of the parameter. */
static int each_element(test_rank* rank, shardcomm_zero* zero, float* values, int sets) {
  int wrong = 0;
  for (size_t p = 0; p < shardcomm_zero_piece_count(zero); ++p) {
    shardcomm_piece piece;
    size_t offset = 0;
    CHECK_OK(rank, shardcomm_zero_shard(zero, p, &piece));
    CHECK_OK(rank, shardcomm_zero_shard_state_offset(zero, p, &offset));
    for (size_t i = 0; i < piece.count; ++i) {
      const float expected = 1000.0f + (float)(piece.offset + i);
      if (sets) values[offset + i] = expected;
      wrong += values[offset + i] != expected;
    }
  }
  return wrong;
}

static void test_states(test_rank* rank, shardcomm_comm* comm, const char* dir) {
  shardcomm_zero* zero = make_zero(rank, comm, 1);
  const size_t count = shardcomm_zero_optimized_count(zero);
  float* const values = calloc(count, sizeof(float));
  const shardcomm_named_state state = {sizeof state, "momentum", values, count};
  shardcomm_save_params save;
  shardcomm_load_params load;
  shardcomm_adam* adam = NULL;
  uint64_t step = 0;
  char* path = NULL;
  CHECK(rank, count * (size_t)rank->size >= kRows * kColumns);
  each_element(rank, zero, values, 1);
  shardcomm_save_params_init(&save);
  save.step = 3;
  save.states = &state;
  save.state_count = 1;
  CHECK_OK(rank, shardcomm_checkpoint_save(zero, dir, &save, &path));
  memset(values, 0, count * sizeof(float));
  shardcomm_load_params_init(&load);
  CHECK_CODE(rank, shardcomm_checkpoint_load(zero, path, &load, NULL, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "[momentum]");
  load.states = &state;
  load.state_count = 1;
  CHECK_OK(rank, shardcomm_checkpoint_load(zero, path, &load, &step, NULL));
  CHECK(rank, step == 3 && each_element(rank, zero, values, 0) == 0);
  load.state_count = 0;
  load.ignore_other_states = 1;
  CHECK_OK(rank, shardcomm_checkpoint_load(zero, path, &load, NULL, NULL));
  load.states = NULL;
  load.state_count = 1;
  CHECK_CODE(rank, shardcomm_checkpoint_load(zero, path, &load, NULL, NULL), SHARDCOMM_INVALID_ARGUMENT);
  shardcomm_string_free(path);

  CHECK_OK(rank, shardcomm_zero_save(zero, NULL, dir, 4, NULL, 1)); /* parameters alone */
  CHECK_OK(rank, shardcomm_checkpoint_newest(dir, &path));
  CHECK_OK(rank, shardcomm_zero_load(zero, NULL, path, &step));
  CHECK(rank, step == 4);
  CHECK_OK(rank, shardcomm_adam_create(zero, NULL, &adam));
  CHECK_CODE(rank, shardcomm_zero_load(zero, adam, path, NULL), SHARDCOMM_INVALID_ARGUMENT);
  shardcomm_adam_destroy(adam);
  shardcomm_string_free(path);
  shardcomm_zero_destroy(zero);
  free(values);
}

static void test_frozen(test_rank* rank, shardcomm_comm* comm) {
  shardcomm_zero* zero = make_zero(rank, comm, 0);
  shardcomm_adam* adam = NULL;
  size_t offset = 0;
  CHECK(rank, shardcomm_zero_optimized_count(zero) == 0);
  CHECK_CODE(rank, shardcomm_adam_create(zero, NULL, &adam), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "shardcomm_tensor_init");
  CHECK_CODE(rank, shardcomm_zero_shard_state_offset(zero, 99, &offset), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_zero_shard_state_offset(NULL, 0, &offset), SHARDCOMM_INVALID_ARGUMENT);
  shardcomm_zero_destroy(zero);
}

static void be_rank(test_rank* rank) {
  shardcomm_store* store = NULL;
  char dir[128];
  CHECK_OK(rank, shardcomm_store_open(rank->uri, &store));
  if (store == NULL) return;
  shardcomm_comm* comm = make_comm(rank, store, "timeout_ms=10000,init_timeout_ms=10000");
  shardcomm_store_close(store);
  if (comm == NULL) return;
  snprintf(dir, sizeof dir, "/tmp/shardcomm-c-states-%s", strrchr(rank->uri, '/') + 1);
  test_states(rank, comm, dir);
  test_frozen(rank, comm);
  CHECK_OK(rank, shardcomm_barrier(comm, (shardcomm_stream){0, 0, NULL}, NULL));
  if (rank->rank == 0) {
    char command[160];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    CHECK(rank, system(command) == 0);
  }
  shardcomm_comm_destroy(comm);
}

int main(void) {
  int failures = 0;
  for (int size = 1; size <= 3; ++size) {
    char uri[64];
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d", free_port());
    failures += run_processes(size, uri, be_rank);
  }
  for (int size = 1; size <= 3; ++size) {
    char uri[64];
    snprintf(uri, sizeof uri, "local://c-states-%d-%d", size, (int)getpid());
    failures += run_threads(size, uri, be_rank);
  }
  if (failures != 0) fprintf(stderr, "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
