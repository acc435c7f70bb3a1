/* Prepared calls, from C. */
#include "tests/c_api/harness.h"

enum { kItems = 20, kCount = 50 };

static const shardcomm_stream kHere = {0, 0, NULL};

static void test_gather(test_rank* rank, shardcomm_comm* comm) {
  const size_t n = (size_t)rank->size;
  float* const shards = calloc(kItems * kCount, sizeof(float));
  float* const fulls = calloc(kItems * kCount * n, sizeof(float));
  shardcomm_gather_item items[kItems];
  shardcomm_prepared* prepared = NULL;
  shardcomm_stream stream;
  for (size_t i = 0; i < kItems; ++i)
    items[i] = (shardcomm_gather_item){shards + i * kCount, fulls + i * kCount * n, kCount, SHARDCOMM_F32};
  CHECK_OK(rank, shardcomm_prepare_gather(comm, items, kItems, "unit", &prepared));
  memset(items, 0, sizeof items); /* not needed afterwards */
  CHECK_OK(rank, shardcomm_host_stream_create("prepared", &stream));
  for (int run = 0; run < 4; ++run) {
    shardcomm_work* work = NULL;
    for (size_t i = 0; i < kItems * kCount; ++i) shards[i] = (float)(rank->rank + run * 10);
    CHECK_OK(rank, shardcomm_run_prepared(prepared, run % 2 == 0 ? kHere : stream, &work));
    CHECK_OK(rank, shardcomm_work_synchronize(work, 10000));
    shardcomm_work_release(work);
    for (size_t r = 0; r < n; ++r) CHECK(rank, fulls[7 * kCount * n + r * kCount + 3] == (float)r + (float)(run * 10));
  }
  shardcomm_prepared_destroy(prepared);
  shardcomm_host_stream_destroy(stream);
  free(shards);
  free(fulls);
}

static void test_reduce(test_rank* rank, shardcomm_comm* comm) {
  const size_t n = (size_t)rank->size;
  int32_t* const fulls = calloc(kCount * n, sizeof(int32_t));
  int32_t shard[kCount];
  const shardcomm_reduce_item item = {fulls, shard, kCount, SHARDCOMM_I32, SHARDCOMM_SUM};
  shardcomm_prepared* prepared = NULL;
  for (size_t i = 0; i < kCount * n; ++i) fulls[i] = (int32_t)i;
  CHECK_OK(rank, shardcomm_prepare_reduce(comm, &item, 1, NULL, &prepared));
  for (int run = 0; run < 3; ++run) CHECK_OK(rank, shardcomm_run_prepared(prepared, kHere, NULL));
  CHECK(rank, shard[5] == rank->size * (rank->rank * kCount + 5));
  shardcomm_prepared_destroy(prepared);
  free(fulls);
}

static void test_refusals(test_rank* rank, shardcomm_comm* comm) {
  float value = 0;
  const shardcomm_reduce_item average = {&value, &value, 1, SHARDCOMM_I32, SHARDCOMM_AVERAGE};
  shardcomm_prepared* prepared = NULL;
  CHECK_CODE(rank, shardcomm_prepare_reduce(comm, &average, 1, NULL, &prepared), SHARDCOMM_UNSUPPORTED);
  CHECK_CODE(rank, shardcomm_prepare_gather(comm, NULL, 1, NULL, &prepared), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_prepare_gather(NULL, NULL, 0, NULL, &prepared), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_prepare_gather(comm, NULL, 0, NULL, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_run_prepared(NULL, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK(rank, prepared == NULL);
  shardcomm_prepared_destroy(NULL);
}

static void be_rank(test_rank* rank) {
  shardcomm_store* store = NULL;
  shardcomm_prepared* none = NULL;
  CHECK_OK(rank, shardcomm_store_open(rank->uri, &store));
  if (store == NULL) return;
  shardcomm_comm* comm = make_comm(rank, store, "timeout_ms=10000,init_timeout_ms=10000");
  shardcomm_store_close(store);
  if (comm == NULL) return;
  test_gather(rank, comm);
  test_reduce(rank, comm);
  test_refusals(rank, comm);
  CHECK_OK(rank, shardcomm_prepare_gather(comm, NULL, 0, "none", &none));
  CHECK_OK(rank, shardcomm_run_prepared(none, kHere, NULL));
  shardcomm_comm_destroy(comm);
  CHECK_CODE(rank, shardcomm_run_prepared(none, kHere, NULL), SHARDCOMM_FAILED_PRECONDITION);
  CHECK_ERROR_SAYS(rank, "destroyed");
  shardcomm_prepared_destroy(none);
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
    snprintf(uri, sizeof uri, "local://c-api-prepared-%d", size);
    failures += run_threads(size, uri, be_rank);
  }
  if (failures != 0) fprintf(stderr, "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
