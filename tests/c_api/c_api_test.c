/* The C ABI from C: every function of c.h but the ZeRO part, by ranks that are threads and by ranks that are processes.
   zero_test.c has the rest. */
#include "tests/c_api/harness.h"

enum { kCount = 1000 };

static const shardcomm_stream kHere = {0, 0, NULL};

static void test_names(test_rank* rank) {
  CHECK(rank, shardcomm_abi_version() == ((SHARDCOMM_ABI_MAJOR << 16) | SHARDCOMM_ABI_MINOR));
  CHECK(rank, strlen(shardcomm_version_string()) >= 5);
  CHECK(rank, strcmp(shardcomm_code_name(SHARDCOMM_OK), "ok") == 0);
  CHECK(rank, strcmp(shardcomm_code_name(SHARDCOMM_PEER_LOST), "peer_lost") == 0);
  CHECK(rank, strcmp(shardcomm_code_name(SHARDCOMM_DATA_LOSS), "data_loss") == 0);
  CHECK(rank, strcmp(shardcomm_code_name(13), "unknown") == 0);
  CHECK(rank, strcmp(shardcomm_code_name(-1), "unknown") == 0);
  CHECK(rank, strcmp(shardcomm_last_error(), "") == 0);
}

static void test_null_is_allowed(void) {
  const shardcomm_stream none = {0, 0, NULL};
  shardcomm_store_close(NULL);
  shardcomm_comm_destroy(NULL);
  shardcomm_window_destroy(NULL);
  shardcomm_work_release(NULL);
  shardcomm_host_stream_destroy(none);
  shardcomm_comm_abort(NULL, "nobody");
}

static void test_refused_meetings(test_rank* rank) {
  shardcomm_store* const untouched_store = (shardcomm_store*)&kHere;
  shardcomm_comm* const untouched_comm = (shardcomm_comm*)&kHere;
  shardcomm_store* store = untouched_store;
  shardcomm_comm* comm = untouched_comm;
  shardcomm_comm_params params;
  CHECK_CODE(rank, shardcomm_store_open(NULL, &store), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_store_open("local://x", NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_store_open("carrier-pigeon://x", &store), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "carrier-pigeon");
  CHECK(rank, store == untouched_store);
  CHECK_OK(rank, shardcomm_store_open(rank->uri, &store));
  memset(&params, 0, sizeof params);
  params.struct_size = 4;
  params.world_size = 1;
  CHECK_CODE(rank, shardcomm_comm_create(store, &params, &comm), SHARDCOMM_INVALID_ARGUMENT);
  params.struct_size = sizeof params;
  CHECK_CODE(rank, shardcomm_comm_create(NULL, &params, &comm), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_comm_create(store, NULL, &comm), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_comm_create(store, &params, NULL), SHARDCOMM_INVALID_ARGUMENT);
  params.options = "no_such_knob=1";
  CHECK_CODE(rank, shardcomm_comm_create(store, &params, &comm), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "no_such_knob");
  params.options = NULL;
  params.device_kind = 9;
  CHECK_CODE(rank, shardcomm_comm_create(store, &params, &comm), SHARDCOMM_INVALID_ARGUMENT);
  params.device_kind = 0;
  params.world_size = 0;
  CHECK_CODE(rank, shardcomm_comm_create(store, &params, &comm), SHARDCOMM_INVALID_ARGUMENT);
  params.world_size = 2;
  params.rank = 2;
  CHECK_CODE(rank, shardcomm_comm_create(store, &params, &comm), SHARDCOMM_INVALID_ARGUMENT);
  CHECK(rank, comm == untouched_comm);
  shardcomm_store_close(store);
  CHECK(rank, shardcomm_comm_rank(NULL) == -1);
  CHECK(rank, shardcomm_comm_size(NULL) == 0);
  CHECK_CODE(rank, shardcomm_comm_health(NULL), SHARDCOMM_INVALID_ARGUMENT);
}

/* Each collective on the caller's thread. */
static void test_collectives(test_rank* rank, shardcomm_comm* comm) {
  const size_t n = (size_t)rank->size, me = (size_t)rank->rank;
  float* in = calloc(n * kCount, sizeof(float));
  float* out = calloc(n * kCount, sizeof(float));
  size_t counts[kMostRanks];
  size_t sum = 0;
  for (size_t i = 0; i < n * kCount; ++i) in[i] = (float)(i % 100) + (float)me;

  CHECK_OK(rank, shardcomm_all_gather(comm, in, out, kCount, SHARDCOMM_F32, kHere, NULL));
  for (size_t r = 0; r < n; ++r) CHECK(rank, out[r * kCount + 7] == 7.0f + (float)r);

  CHECK_OK(rank, shardcomm_reduce_scatter(comm, in, out, kCount, SHARDCOMM_F32, SHARDCOMM_MAX, kHere, NULL));
  CHECK(rank, out[42] == 42.0f + (float)(n - 1));

  CHECK_OK(rank, shardcomm_all_reduce(comm, in, out, kCount, SHARDCOMM_F32, SHARDCOMM_SUM, kHere, NULL));
  CHECK(rank, out[42] == 42.0f * (float)n + (float)(n * (n - 1) / 2));

  memcpy(out, in, kCount * sizeof(float));
  CHECK_OK(rank, shardcomm_broadcast(comm, out, kCount, SHARDCOMM_F32, (int32_t)n - 1, kHere, NULL));
  CHECK(rank, out[42] == 42.0f + (float)(n - 1));

  for (size_t r = 0; r < n; ++r) in[r * kCount] = (float)(100 * me + r);
  CHECK_OK(rank, shardcomm_all_to_all(comm, in, out, kCount, SHARDCOMM_F32, kHere, NULL));
  for (size_t r = 0; r < n; ++r) CHECK(rank, out[r * kCount] == (float)(100 * r + me));

  CHECK_OK(rank, shardcomm_barrier(comm, kHere, NULL));

  for (size_t r = 0; r < n; ++r) sum += counts[r] = r * 3;
  for (size_t i = 0; i < sum; ++i) in[i] = (float)me;
  CHECK_OK(rank, shardcomm_all_gather_v(comm, in, out, counts, SHARDCOMM_F32, kHere, NULL));
  if (sum > 0) CHECK(rank, out[sum - 1] == (float)(n - 1));
  CHECK_OK(rank, shardcomm_reduce_scatter_v(comm, in, out, counts, SHARDCOMM_F32, SHARDCOMM_MIN, kHere, NULL));
  if (counts[me] > 0) CHECK(rank, out[counts[me] - 1] == 0.0f);
  free(in);
  free(out);
}

static void test_many(test_rank* rank, shardcomm_comm* comm) {
  const size_t n = (size_t)rank->size;
  int64_t wide[3] = {rank->rank, -rank->rank, 5}, wide_full[3 * kMostRanks];
  uint8_t narrow = (uint8_t)(rank->rank + 1), narrow_full[kMostRanks], most = 0;
  double average = 0, inputs[kMostRanks];
  const shardcomm_gather_item gathers[] = {{wide, wide_full, 3, SHARDCOMM_I64},
                                           {&narrow, narrow_full, 1, SHARDCOMM_U8}};
  const shardcomm_reduce_item reduces[] = {{inputs, &average, 1, SHARDCOMM_F64, SHARDCOMM_AVERAGE},
                                           {narrow_full, &most, 1, SHARDCOMM_U8, SHARDCOMM_PRODUCT}};
  CHECK_OK(rank, shardcomm_all_gather_many(comm, gathers, 2, kHere, NULL));
  CHECK(rank, wide_full[3 * (n - 1)] == (int64_t)n - 1 && wide_full[3 * n - 1] == 5);
  CHECK(rank, narrow_full[0] == 1 && narrow_full[n - 1] == n);
  for (size_t r = 0; r < n; ++r) inputs[r] = (double)rank->rank;
  for (size_t r = 0; r < n; ++r) narrow_full[r] = 2;
  CHECK_OK(rank, shardcomm_reduce_scatter_many(comm, reduces, 2, kHere, NULL));
  CHECK(rank, average == (double)(n - 1) / 2);
  CHECK(rank, most == 1u << n);
  CHECK_OK(rank, shardcomm_all_gather_many(comm, NULL, 0, kHere, NULL));
  CHECK_OK(rank, shardcomm_reduce_scatter_many(comm, NULL, 0, kHere, NULL));
  CHECK_CODE(rank, shardcomm_all_gather_many(comm, NULL, 2, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_reduce_scatter_many(comm, NULL, 1, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
}

static void test_streams_and_work(test_rank* rank, shardcomm_comm* comm) {
  shardcomm_stream streams[2];
  shardcomm_work* works[3] = {NULL, NULL, NULL};
  int32_t done = -1;
  uint32_t value = 1;
  const uint32_t n = (uint32_t)rank->size;
  for (int s = 0; s < 2; ++s) {
    CHECK_OK(rank, shardcomm_host_stream_create(s == 0 ? "first" : NULL, &streams[s]));
    CHECK(rank, streams[s].kind == 0 && streams[s].handle != NULL);
  }
  CHECK_CODE(rank, shardcomm_host_stream_create("x", NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_OK(rank, shardcomm_all_reduce(comm, &value, &value, 1, SHARDCOMM_U32, SHARDCOMM_SUM, streams[0], &works[0]));
  CHECK_OK(rank, shardcomm_stream_wait(streams[1], works[0]));
  CHECK_OK(rank, shardcomm_all_reduce(comm, &value, &value, 1, SHARDCOMM_U32, SHARDCOMM_SUM, streams[1], &works[1]));
  CHECK_OK(rank, shardcomm_barrier(comm, streams[1], NULL));
  CHECK_OK(rank, shardcomm_work_synchronize(works[1], 10000));
  CHECK(rank, value == n * n);
  CHECK_OK(rank, shardcomm_work_done(works[0], &done));
  CHECK(rank, done == 1);
  CHECK_OK(rank, shardcomm_stream_synchronize(streams[0], 10000));
  CHECK_OK(rank, shardcomm_stream_synchronize(streams[1], 10000));
  CHECK_OK(rank, shardcomm_stream_synchronize(kHere, 0));
  CHECK_OK(rank, shardcomm_barrier(comm, kHere, &works[2]));
  CHECK(rank, works[2] != NULL);
  done = -1;
  CHECK_OK(rank, shardcomm_work_done(works[2], &done));
  CHECK(rank, done == 1);
  CHECK_OK(rank, shardcomm_work_synchronize(works[2], 0));
  CHECK_CODE(rank, shardcomm_work_done(NULL, &done), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_work_done(works[0], NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_work_synchronize(NULL, 0), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_stream_wait(streams[0], NULL), SHARDCOMM_INVALID_ARGUMENT);
  for (int i = 0; i < 3; ++i) shardcomm_work_release(works[i]);
  /* Dropping a work cancels nothing; destroying a stream drains it. */
  CHECK_OK(rank, shardcomm_all_reduce(comm, &value, &value, 1, SHARDCOMM_U32, SHARDCOMM_MAX, streams[0], &works[0]));
  shardcomm_work_release(works[0]);
  for (int s = 0; s < 2; ++s) shardcomm_host_stream_destroy(streams[s]);
  CHECK(rank, value == n * n);
}

static void test_windows(test_rank* rank, shardcomm_comm* comm) {
  const size_t n = (size_t)rank->size, bytes = 200000;
  shardcomm_window* window = NULL;
  shardcomm_window* mine = NULL;
  unsigned char* memory = calloc(n, bytes);
  CHECK_OK(rank, shardcomm_window_allocate(comm, n * bytes, "c window", &window));
  unsigned char* data = shardcomm_window_data(window);
  CHECK(rank, data != NULL && data[0] == 0 && data[n * bytes - 1] == 0);
  memset(data + (size_t)rank->rank * bytes, rank->rank + 1, bytes);
  CHECK_OK(rank, shardcomm_all_gather(comm, data + (size_t)rank->rank * bytes, data, bytes, SHARDCOMM_U8, kHere, NULL));
  for (size_t r = 0; r < n; ++r) CHECK(rank, data[r * bytes] == r + 1 && data[(r + 1) * bytes - 1] == r + 1);
  CHECK_OK(rank, shardcomm_window_register(comm, memory, n * bytes, NULL, &mine));
  CHECK(rank, shardcomm_window_data(mine) == memory);
  CHECK(rank, shardcomm_window_data(NULL) == NULL);
  shardcomm_window_destroy(mine);
  shardcomm_window_destroy(window);
  window = NULL;
  CHECK_CODE(rank, shardcomm_window_allocate(comm, (size_t)1 << 46, "huge", &window), SHARDCOMM_OUT_OF_MEMORY);
  CHECK_ERROR_SAYS(rank, "huge");
  CHECK(rank, window == NULL);
  CHECK_CODE(rank, shardcomm_window_allocate(NULL, 1, "x", &window), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_window_allocate(comm, 1, "x", NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_window_register(comm, NULL, 1, "x", &window), SHARDCOMM_INVALID_ARGUMENT);
  free(memory);
}

static void test_mosaics(test_rank* rank, shardcomm_comm* comm) {
  const size_t bytes = 2 * shardcomm_mosaic_granularity_bytes();
  shardcomm_mosaic* mosaic = NULL;
  CHECK_CODE(rank, shardcomm_mosaic_allocate(comm, bytes + 1, "odd", &mosaic), SHARDCOMM_INVALID_ARGUMENT);
  CHECK(rank, mosaic == NULL);
  CHECK_OK(rank, shardcomm_mosaic_allocate(comm, bytes, "c mosaic", &mosaic));
  memset(shardcomm_mosaic_shard(mosaic), rank->rank + 1, bytes);
  CHECK_OK(rank, shardcomm_all_gather_mosaic(comm, mosaic, kHere, NULL));
  const unsigned char* all = shardcomm_mosaic_all(mosaic);
  for (size_t r = 0; r < (size_t)rank->size; ++r) {
    CHECK(rank, all[r * bytes] == r + 1 && all[(r + 1) * bytes - 1] == r + 1);
  }
  CHECK_OK(rank, shardcomm_barrier(comm, kHere, NULL)); /* all have read */
  CHECK_CODE(rank, shardcomm_all_gather_mosaic(comm, NULL, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK(rank, shardcomm_mosaic_shard(NULL) == NULL && shardcomm_mosaic_all(NULL) == NULL);
  shardcomm_mosaic_destroy(mosaic);
  shardcomm_mosaic_destroy(NULL);
}

static void test_split(test_rank* rank, shardcomm_comm* comm) {
  shardcomm_comm* child = NULL;
  shardcomm_comm* none = comm;
  int32_t sum = 0;
  CHECK_OK(rank, shardcomm_comm_split(comm, rank->rank % 2, -rank->rank, &child));
  const int32_t size = (rank->size + 1 - rank->rank % 2) / 2;
  CHECK(rank, shardcomm_comm_size(child) == size);
  CHECK(rank, shardcomm_comm_rank(child) == size - 1 - rank->rank / 2);
  const int32_t one = 1;
  CHECK_OK(rank, shardcomm_all_reduce(child, &one, &sum, 1, SHARDCOMM_I32, SHARDCOMM_SUM, kHere, NULL));
  CHECK(rank, sum == size);
  shardcomm_comm_destroy(child);
  CHECK_OK(rank, shardcomm_comm_split(comm, -1, 0, &none));
  CHECK(rank, none == NULL);
  CHECK_CODE(rank, shardcomm_comm_split(comm, 0, 0, NULL), SHARDCOMM_INVALID_ARGUMENT);
}

static void test_refused_calls(test_rank* rank, shardcomm_comm* comm) {
  const shardcomm_stream odd = {7, 0, NULL}, cuda = {1, 0, NULL};
  float in[8] = {0}, out[64] = {0};
  shardcomm_work* const untouched = (shardcomm_work*)&kHere;
  shardcomm_work* work = untouched;
  CHECK_CODE(rank, shardcomm_all_gather(NULL, in, out, 1, SHARDCOMM_F32, kHere, &work), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_all_gather(comm, in, out, 1, SHARDCOMM_F32, odd, &work), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_all_gather(comm, in, out, 1, SHARDCOMM_F32, cuda, &work), SHARDCOMM_UNSUPPORTED);
  CHECK_CODE(rank, shardcomm_all_gather(comm, NULL, out, 1, SHARDCOMM_F32, kHere, &work), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_all_gather(comm, in, out, 1, 99, kHere, &work), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_all_gather(comm, in, out, 1, -1, kHere, &work), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_all_gather(comm, in, out, 1, 256, kHere, &work), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_all_reduce(comm, in, out, 1, SHARDCOMM_F32, 99, kHere, &work), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_all_reduce(comm, in, out, 1, SHARDCOMM_F32, -1, kHere, &work), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_all_reduce(comm, in, out, 1, SHARDCOMM_I32, SHARDCOMM_AVERAGE, kHere, &work),
             SHARDCOMM_UNSUPPORTED);
  CHECK_CODE(rank, shardcomm_reduce_scatter(comm, in, out, SIZE_MAX, SHARDCOMM_F64, SHARDCOMM_SUM, kHere, &work),
             SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_broadcast(comm, in, 1, SHARDCOMM_F32, rank->size, kHere, &work),
             SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_all_to_all(comm, in, in, 1, SHARDCOMM_F32, kHere, &work), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_all_gather_v(comm, in, out, NULL, SHARDCOMM_F32, kHere, &work),
             SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_reduce_scatter_v(comm, in, out, NULL, SHARDCOMM_F32, SHARDCOMM_SUM, kHere, &work),
             SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_barrier(NULL, kHere, &work), SHARDCOMM_INVALID_ARGUMENT);
  CHECK(rank, work == untouched);
  CHECK(rank, strlen(shardcomm_last_error()) > 0);
  CHECK_OK(rank, shardcomm_comm_health(comm));
}

static void test_abort(test_rank* rank, shardcomm_comm* comm) {
  CHECK_OK(rank, shardcomm_barrier(comm, kHere, NULL));
  if (rank->rank == 0) shardcomm_comm_abort(comm, "seen enough");
  CHECK_CODE(rank, shardcomm_barrier(comm, kHere, NULL), SHARDCOMM_ABORTED);
  CHECK_ERROR_SAYS(rank, "seen enough");
  CHECK_CODE(rank, shardcomm_comm_health(comm), SHARDCOMM_ABORTED);
}

static void be_rank(test_rank* rank) {
  shardcomm_store* store = NULL;
  test_names(rank);
  CHECK_OK(rank, shardcomm_store_open(rank->uri, &store));
  if (store == NULL) return;
  shardcomm_comm* comm = make_comm(rank, store, "timeout_ms=20000,init_timeout_ms=20000,memory_access=staging");
  shardcomm_store_close(store); /* needed for the creation only */
  if (comm == NULL) return;
  CHECK(rank, shardcomm_comm_rank(comm) == rank->rank);
  CHECK(rank, shardcomm_comm_size(comm) == rank->size);
  CHECK_OK(rank, shardcomm_comm_health(comm));
  test_collectives(rank, comm);
  test_many(rank, comm);
  test_streams_and_work(rank, comm);
  test_windows(rank, comm);
  test_mosaics(rank, comm);
  test_split(rank, comm);
  test_refused_calls(rank, comm);
  test_collectives(rank, comm); /* still in order */
  test_abort(rank, comm);
  shardcomm_comm_destroy(comm);
}

int main(void) {
  int failures = 0;
  test_rank alone = {0, 1, "local://c-api-refused", 0};
  for (int size = 1; size <= 4; ++size) {
    char uri[64];
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d", free_port());
    failures += run_processes(size, uri, be_rank);
  }
  test_null_is_allowed();
  for (int size = 1; size <= 4; ++size) {
    char uri[64];
    snprintf(uri, sizeof uri, "local://c-api-%d", size);
    failures += run_threads(size, uri, be_rank);
  }
  test_refused_meetings(&alone);
  failures += alone.failures;
  if (failures != 0) fprintf(stderr, "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
