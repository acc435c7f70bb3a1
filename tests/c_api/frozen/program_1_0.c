/* A program of ABI version 1.0: it knows the c.h in 1.0/ only, calls every function there, and fills in structs as it
   was done then, by initializer lists as well as by the _init functions. Ranks are threads and processes. */
#include <math.h>
#include <stdint.h>

#include "tests/c_api/harness.h"

#if SHARDCOMM_ABI_MAJOR != 1 || SHARDCOMM_ABI_MINOR != 0
#error "this program is compiled against version 1.0 of c.h alone"
#endif

enum { kCount = 40, kShape = 10 };

static const shardcomm_stream kCaller = {0, 0, NULL};

static void use_names(test_rank* rank) {
  const uint32_t version = shardcomm_abi_version();
  CHECK(rank, version >> 16 == 1); /* any minor version will do */
  CHECK(rank, strlen(shardcomm_version_string()) >= 5);
  CHECK(rank, strcmp(shardcomm_code_name(SHARDCOMM_DATA_LOSS), "data_loss") == 0);
  CHECK(rank, shardcomm_last_error() != NULL);
}

static void use_collectives(test_rank* rank, shardcomm_comm* comm) {
  const size_t n = (size_t)rank->size, me = (size_t)rank->rank;
  float in[kMostRanks * kCount], out[kMostRanks * kCount];
  size_t counts[kMostRanks], sum = 0;
  for (size_t i = 0; i < n * kCount; ++i) in[i] = (float)(i + me);
  CHECK_OK(rank, shardcomm_all_gather(comm, in, out, kCount, SHARDCOMM_F32, kCaller, NULL));
  for (size_t r = 0; r < n; ++r) CHECK(rank, out[r * kCount + 7] == (float)(7 + r));
  CHECK_OK(rank, shardcomm_reduce_scatter(comm, in, out, kCount, SHARDCOMM_F32, SHARDCOMM_MAX, kCaller, NULL));
  CHECK(rank, out[3] == (float)(me * kCount + 3 + n - 1));
  CHECK_OK(rank, shardcomm_all_reduce(comm, in, out, kCount, SHARDCOMM_F32, SHARDCOMM_SUM, kCaller, NULL));
  CHECK(rank, out[5] == (float)(5 * n + n * (n - 1) / 2));
  CHECK_OK(rank, shardcomm_all_reduce(comm, in, out, kCount, SHARDCOMM_F32, SHARDCOMM_AVERAGE, kCaller, NULL));
  CHECK_OK(rank, shardcomm_broadcast(comm, out, kCount, SHARDCOMM_F32, 0, kCaller, NULL));
  CHECK_OK(rank, shardcomm_all_to_all(comm, in, out, kCount, SHARDCOMM_F32, kCaller, NULL));
  for (size_t r = 0; r < n; ++r) CHECK(rank, out[r * kCount] == (float)(me * kCount + r));
  CHECK_OK(rank, shardcomm_barrier(comm, kCaller, NULL));
  for (size_t r = 0; r < n; ++r) sum += counts[r] = r * 3;
  CHECK_OK(rank, shardcomm_all_gather_v(comm, in, out, counts, SHARDCOMM_F32, kCaller, NULL));
  CHECK(rank, sum == 0 || out[sum - 1] == (float)(3 * (n - 1) - 1 + n - 1));
  CHECK_OK(rank, shardcomm_reduce_scatter_v(comm, in, out, counts, SHARDCOMM_F32, SHARDCOMM_MIN, kCaller, NULL));
  CHECK(rank, me == 0 || out[0] == (float)(3 * me * (me - 1) / 2));
}

static void use_many(test_rank* rank, shardcomm_comm* comm) {
  const size_t n = (size_t)rank->size;
  const int64_t wide[3] = {rank->rank, -rank->rank, 5};
  const uint8_t narrow = (uint8_t)(rank->rank + 1);
  int64_t wide_full[3 * kMostRanks];
  uint8_t narrow_full[kMostRanks];
  double inputs[kMostRanks], average = 0;
  uint8_t product = 0;
  const shardcomm_gather_item gathers[] = {{wide, wide_full, 3, SHARDCOMM_I64},
                                           {&narrow, narrow_full, 1, SHARDCOMM_U8}};
  const shardcomm_reduce_item reduces[] = {{inputs, &average, 1, SHARDCOMM_F64, SHARDCOMM_AVERAGE},
                                           {narrow_full, &product, 1, SHARDCOMM_U8, SHARDCOMM_PRODUCT}};
  CHECK_OK(rank, shardcomm_all_gather_many(comm, gathers, 2, kCaller, NULL));
  CHECK(rank, wide_full[3 * n - 1] == 5 && wide_full[3 * (n - 1)] == (int64_t)n - 1 && narrow_full[n - 1] == n);
  for (size_t r = 0; r < n; ++r) inputs[r] = (double)rank->rank;
  for (size_t r = 0; r < n; ++r) narrow_full[r] = 2;
  CHECK_OK(rank, shardcomm_reduce_scatter_many(comm, reduces, 2, kCaller, NULL));
  CHECK(rank, average == (double)(n - 1) / 2 && product == 1U << n);
}

static void use_streams(test_rank* rank, shardcomm_comm* comm) {
  shardcomm_stream stream, other;
  shardcomm_work* work = NULL;
  int32_t done = 0;
  uint32_t value = 1;
  CHECK_OK(rank, shardcomm_host_stream_create("frozen", &stream));
  CHECK_OK(rank, shardcomm_host_stream_create(NULL, &other));
  CHECK_OK(rank, shardcomm_all_reduce(comm, &value, &value, 1, SHARDCOMM_U32, SHARDCOMM_SUM, stream, &work));
  CHECK_OK(rank, shardcomm_stream_wait(other, work));
  CHECK_OK(rank, shardcomm_stream_synchronize(other, 20000));
  CHECK_OK(rank, shardcomm_work_synchronize(work, 20000));
  CHECK_OK(rank, shardcomm_work_done(work, &done));
  CHECK(rank, done == 1 && value == (uint32_t)rank->size);
  shardcomm_work_release(work);
  shardcomm_host_stream_destroy(stream);
  shardcomm_host_stream_destroy(other);
}

static void use_memory(test_rank* rank, shardcomm_comm* comm) {
  const size_t n = (size_t)rank->size, me = (size_t)rank->rank, bytes = shardcomm_mosaic_granularity_bytes();
  shardcomm_window *window = NULL, *registered = NULL;
  shardcomm_mosaic* mosaic = NULL;
  unsigned char* memory = calloc(n, bytes);
  CHECK_OK(rank, shardcomm_window_allocate(comm, n * bytes, "frozen", &window));
  unsigned char* data = shardcomm_window_data(window);
  data[me * bytes] = (unsigned char)(me + 1);
  CHECK_OK(rank, shardcomm_all_gather(comm, data + me * bytes, data, bytes, SHARDCOMM_U8, kCaller, NULL));
  for (size_t r = 0; r < n; ++r) CHECK(rank, data[r * bytes] == r + 1);
  CHECK_OK(rank, shardcomm_window_register(comm, memory, n * bytes, NULL, &registered));
  CHECK(rank, shardcomm_window_data(registered) == memory);
  CHECK_OK(rank, shardcomm_mosaic_allocate(comm, bytes, "frozen", &mosaic));
  memset(shardcomm_mosaic_shard(mosaic), (int)me + 1, bytes);
  CHECK_OK(rank, shardcomm_all_gather_mosaic(comm, mosaic, kCaller, NULL));
  for (size_t r = 0; r < n; ++r) CHECK(rank, ((const unsigned char*)shardcomm_mosaic_all(mosaic))[r * bytes] == r + 1);
  CHECK_OK(rank, shardcomm_barrier(comm, kCaller, NULL));
  shardcomm_mosaic_destroy(mosaic);
  shardcomm_window_destroy(registered);
  shardcomm_window_destroy(window);
  free(memory);
}

static void fill(void* user, uint32_t unit, uint32_t parameter, size_t offset, float* values, size_t count) {
  const float* start = user;
  for (size_t i = 0; i < count; ++i) values[i] = *start + (float)(100 * unit + 10 * parameter + offset + i);
}

/* One pass over both units; in backward every gradient is 1 on every rank. */
static void pass_units(test_rank* rank, shardcomm_zero* zero, int32_t pass) {
  for (uint32_t u = 0; u < 2; ++u) {
    CHECK_OK(rank, shardcomm_zero_before(zero, u, pass, kCaller));
    for (size_t p = 0; pass == 1 && p < 2; ++p) {
      shardcomm_view view;
      CHECK_OK(rank, shardcomm_zero_parameter(zero, u, p, &view));
      CHECK(rank, view.count == kShape && view.gradient_dtype == SHARDCOMM_F32);
      for (size_t i = 0; view.gradient != NULL && i < view.count; ++i) ((float*)view.gradient)[i] += 1;
    }
    CHECK_OK(rank, shardcomm_zero_after(zero, u, pass, kCaller));
  }
}

/* The first value of the first parameter. */
static float first_value(test_rank* rank, shardcomm_zero* zero) {
  shardcomm_view view = {NULL, NULL, 0, 0, 0};
  CHECK_OK(rank, shardcomm_zero_before(zero, 0, 0, kCaller));
  CHECK_OK(rank, shardcomm_zero_parameter(zero, 0, 0, &view));
  const float value = view.value == NULL ? -1 : *(float*)view.value;
  CHECK_OK(rank, shardcomm_zero_after(zero, 0, 0, kCaller));
  CHECK_OK(rank, shardcomm_zero_finish_step(zero, kCaller));
  return value;
}

static void update_by_hand(test_rank* rank, shardcomm_zero* zero) {
  CHECK_OK(rank, shardcomm_zero_begin_update(zero));
  for (size_t i = 0; i < shardcomm_zero_piece_count(zero); ++i) {
    shardcomm_piece piece;
    float* master = NULL;
    CHECK_OK(rank, shardcomm_zero_shard(zero, i, &piece));
    CHECK_OK(rank, shardcomm_zero_shard_master(zero, i, &master));
    CHECK(rank, (master == NULL) == (piece.parameter == 1) && (piece.gradient == NULL) == (master == NULL));
    for (size_t k = 0; master != NULL && k < piece.count; ++k) master[k] = 2;
  }
  CHECK_OK(rank, shardcomm_zero_publish_unit(zero, 0));
  CHECK_OK(rank, shardcomm_zero_publish(zero));
  shardcomm_zero_zero_gradients(zero);
  CHECK_OK(rank, shardcomm_zero_synchronize(zero, 20000));
  CHECK(rank, first_value(rank, zero) == 2);
}

static void use_checkpoints(test_rank* rank, shardcomm_zero* zero, shardcomm_adam* adam) {
  char dir[64], step_dir[128];
  uint64_t step = 0;
  float start = 50;
  snprintf(dir, sizeof dir, "frozen_1_0.checkpoints.%d", rank->size);
  snprintf(step_dir, sizeof step_dir, "%s/step-00000007", dir);
  const float saved = first_value(rank, zero);
  CHECK_OK(rank, shardcomm_zero_save(zero, adam, dir, 7, NULL, 1));
  CHECK_OK(rank, shardcomm_zero_fill(zero, fill, &start));
  CHECK(rank, first_value(rank, zero) == 50);
  CHECK_OK(rank, shardcomm_zero_load(zero, adam, step_dir, &step));
  CHECK(rank, step == 7 && first_value(rank, zero) == saved);
}

static void use_zero(test_rank* rank, shardcomm_comm* comm) {
  const size_t shape[1] = {kShape};
  const shardcomm_tensor tensors[2] = {{sizeof tensors[0], "weight", shape, 1, SHARDCOMM_F32, 1, 1, NULL},
                                       {sizeof tensors[0], "frozen", shape, 1, SHARDCOMM_F32, 0, 1, NULL}};
  const shardcomm_unit units[2] = {{sizeof units[0], "first", tensors, 2}, {sizeof units[0], "second", tensors, 2}};
  shardcomm_zero_params params;
  shardcomm_adam_params adam_params;
  shardcomm_memory_report memory;
  shardcomm_zero* zero = NULL;
  shardcomm_adam* adam = NULL;
  double norm = 0;
  float start = 10;
  shardcomm_zero_params_init(&params);
  CHECK(rank, params.struct_size == sizeof params && params.stage == 3 && params.gradient_dtype == SHARDCOMM_F32);
  params.stage = 2;
  CHECK_OK(rank, shardcomm_zero_create(comm, units, 2, &params, &zero));
  if (zero == NULL) return;
  CHECK_OK(rank, shardcomm_zero_fill(zero, fill, &start));
  CHECK(rank, first_value(rank, zero) == 10);
  shardcomm_zero_set_gradient_sync(zero, 1);
  pass_units(rank, zero, 0);
  pass_units(rank, zero, 1);
  CHECK_OK(rank, shardcomm_zero_finish_step(zero, kCaller));
  CHECK_OK(rank, shardcomm_zero_gradient_norm(zero, &norm));
  CHECK(rank, fabs(norm - rank->size * sqrt(2.0 * kShape)) < 1e-9);
  memset(&memory, 0xff, sizeof memory);
  memory.struct_size = sizeof memory;
  CHECK_OK(rank, shardcomm_zero_memory_report(zero, &memory));
  CHECK(rank,
        memory.struct_size == sizeof memory && memory.peak_bytes >= memory.live_bytes && memory.peak_bytes < 1U << 30);

  shardcomm_adam_params_init(&adam_params);
  CHECK(rank, adam_params.struct_size == sizeof adam_params);
  adam_params.weight_decay = 0;
  CHECK_OK(rank, shardcomm_adam_create(zero, &adam_params, &adam));
  CHECK_OK(rank, shardcomm_adam_step(adam, 0.5f, 1));
  CHECK(rank, shardcomm_adam_steps(adam) == 1 && fabsf(first_value(rank, zero) - 9.5f) < 1e-4f);
  use_checkpoints(rank, zero, adam);
  update_by_hand(rank, zero);
  shardcomm_adam_destroy(adam);
  shardcomm_zero_destroy(zero);
}

static void use_errors(test_rank* rank, shardcomm_comm* comm) {
  shardcomm_zero_params zeroed;
  shardcomm_zero* zero = NULL;
  memset(&zeroed, 0, sizeof zeroed);
  CHECK_CODE(rank, shardcomm_zero_create(comm, NULL, 0, &zeroed, &zero), SHARDCOMM_INVALID_ARGUMENT);
  CHECK(rank, zero == NULL && strncmp(shardcomm_last_error(), "invalid_argument: ", 18) == 0);
  CHECK_OK(rank, shardcomm_comm_health(comm));
  CHECK_OK(rank, shardcomm_barrier(comm, kCaller, NULL));
  if (rank->rank == 0) shardcomm_comm_abort(comm, "the end");
  CHECK_CODE(rank, shardcomm_barrier(comm, kCaller, NULL), SHARDCOMM_ABORTED);
  CHECK_ERROR_SAYS(rank, "the end");
  CHECK_CODE(rank, shardcomm_comm_health(comm), SHARDCOMM_ABORTED);
}

static void be_rank(test_rank* rank) {
  shardcomm_store* store = NULL;
  shardcomm_comm *comm = NULL, *child = NULL;
  const shardcomm_comm_params place = {sizeof place, rank->rank, rank->size, 0, 0, "timeout_ms=20000"};
  use_names(rank);
  CHECK_OK(rank, shardcomm_store_open(rank->uri, &store));
  CHECK_OK(rank, shardcomm_comm_create(store, &place, &comm));
  shardcomm_store_close(store);
  if (comm == NULL) return;
  CHECK(rank, shardcomm_comm_rank(comm) == rank->rank && shardcomm_comm_size(comm) == rank->size);
  use_collectives(rank, comm);
  use_many(rank, comm);
  use_streams(rank, comm);
  use_memory(rank, comm);
  use_zero(rank, comm);
  CHECK_OK(rank, shardcomm_comm_split(comm, 0, -rank->rank, &child));
  CHECK(rank, shardcomm_comm_rank(child) == rank->size - 1 - rank->rank);
  shardcomm_comm_destroy(child);
  use_errors(rank, comm);
  shardcomm_comm_destroy(comm);
}

int main(void) {
  int failures = 0;
  for (int size = 1; size <= 3; ++size) {
    char uri[64];
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d", free_port());
    failures += run_processes(size, uri, be_rank);
    snprintf(uri, sizeof uri, "local://frozen-%d", size);
    failures += run_threads(size, uri, be_rank);
  }
  if (failures != 0) fprintf(stderr, "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
