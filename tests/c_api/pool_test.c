/* Memory pools, from C. */
#include "tests/c_api/harness.h"

enum { kCount = 50000 };

static const shardcomm_stream kHere = {0, 0, NULL};

static void test_blocks(test_rank* rank, shardcomm_comm* comm) {
  const size_t n = (size_t)rank->size;
  float* const full = calloc(kCount * n, sizeof(float));
  void *first = NULL, *shard = NULL, *other = NULL;
  shardcomm_pool* pool = NULL;
  shardcomm_pool_params params;
  shardcomm_pool_report_values report;
  shardcomm_pool_params_init(&params);
  CHECK(rank, params.struct_size == sizeof params && params.initial_bytes == 0 && params.label == NULL);
  params.initial_bytes = 4096;
  params.label = "tensors";
  CHECK_OK(rank, shardcomm_pool_create(comm, &params, &pool));
  CHECK_OK(rank, shardcomm_pool_take(pool, 100 * (size_t)(rank->rank + 1), 0, &first));
  CHECK_OK(rank, shardcomm_pool_take(pool, kCount * sizeof(float), 4096, &shard));
  CHECK(rank, (uintptr_t)first % 64 == 0 && (uintptr_t)shard % 4096 == 0);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < kCount; ++i) ((float*)shard)[i] = (float)(rank->rank * 10 + round);
    CHECK_OK(rank, shardcomm_all_gather(comm, shard, full, kCount, SHARDCOMM_F32, kHere, NULL));
    for (size_t r = 0; r < n; ++r) CHECK(rank, full[r * kCount + kCount - 1] == (float)(r * 10) + (float)round);
  }
  memset(&report, 0xff, sizeof report);
  report.struct_size = sizeof report;
  CHECK_OK(rank, shardcomm_pool_report(pool, &report));
  CHECK(rank, report.blocks == 2 && report.segments == 2 && report.used_bytes >= kCount * sizeof(float));
  CHECK(rank, report.peak_used_bytes == report.used_bytes && report.reserved_bytes > report.used_bytes);
  CHECK_OK(rank, shardcomm_pool_give(pool, shard));
  CHECK_CODE(rank, shardcomm_pool_give(pool, shard), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "pool 'tensors'");
  CHECK_CODE(rank, shardcomm_pool_give(pool, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_pool_take(pool, 10, 3, &other), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_pool_take(pool, SIZE_MAX, 0, &other), SHARDCOMM_OUT_OF_MEMORY);
  CHECK(rank, other == NULL);
  CHECK_OK(rank, shardcomm_pool_give(pool, first));
  CHECK(rank, shardcomm_pool_trim(pool) == report.reserved_bytes);
  shardcomm_pool_destroy(pool);
  free(full);
}

static void test_refusals(test_rank* rank, shardcomm_comm* comm) {
  shardcomm_pool* pool = NULL;
  shardcomm_pool_report_values report;
  shardcomm_pool_params params;
  void* block = NULL;
  shardcomm_pool_params_init(&params);
  params.struct_size = 4;
  CHECK_CODE(rank, shardcomm_pool_create(comm, &params, &pool), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "shardcomm_pool_params_init");
  shardcomm_pool_params_init(&params);
  params.initial_bytes = 8192;
  params.max_bytes = 4096;
  CHECK_CODE(rank, shardcomm_pool_create(comm, &params, &pool), SHARDCOMM_OUT_OF_MEMORY);
  CHECK_CODE(rank, shardcomm_pool_create(NULL, NULL, &pool), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_pool_create(comm, NULL, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_pool_take(NULL, 1, 0, &block), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_pool_give(NULL, &report), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_pool_report(NULL, &report), SHARDCOMM_INVALID_ARGUMENT);
  CHECK(rank, pool == NULL && block == NULL && shardcomm_pool_trim(NULL) == 0);
  CHECK_OK(rank, shardcomm_pool_create(comm, NULL, &pool)); /* NULL: the defaults */
  CHECK_CODE(rank, shardcomm_pool_take(pool, 1, 0, NULL), SHARDCOMM_INVALID_ARGUMENT);
  report.struct_size = 1;
  CHECK_CODE(rank, shardcomm_pool_report(pool, &report), SHARDCOMM_INVALID_ARGUMENT);
  shardcomm_pool_destroy(pool);
  shardcomm_pool_destroy(NULL);
}

static void be_rank(test_rank* rank) {
  shardcomm_store* store = NULL;
  shardcomm_pool* pool = NULL;
  void* block = NULL;
  CHECK_OK(rank, shardcomm_store_open(rank->uri, &store));
  if (store == NULL) return;
  shardcomm_comm* comm = make_comm(rank, store, "timeout_ms=10000,init_timeout_ms=10000");
  shardcomm_store_close(store);
  if (comm == NULL) return;
  test_blocks(rank, comm);
  test_refusals(rank, comm);
  CHECK_OK(rank, shardcomm_pool_create(comm, NULL, &pool));
  shardcomm_comm_destroy(comm);
  CHECK_OK(rank, shardcomm_pool_take(pool, 5000, 0, &block)); /* it outlives the communicator */
  CHECK_OK(rank, shardcomm_pool_give(pool, block));
  shardcomm_pool_destroy(pool);
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
    snprintf(uri, sizeof uri, "local://c-api-pool-%d", size);
    failures += run_threads(size, uri, be_rank);
  }
  if (failures != 0) fprintf(stderr, "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
