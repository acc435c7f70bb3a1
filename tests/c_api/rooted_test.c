/* The rooted collectives, all_to_all_v and the many-tensor forms of all_reduce and broadcast, from C. */
#include "tests/c_api/harness.h"

enum { kCount = 1000 };

static const shardcomm_stream kHere = {0, 0, NULL};

static void test_roots(test_rank* rank, shardcomm_comm* comm) {
  const size_t n = (size_t)rank->size;
  const int32_t root = rank->size - 1;
  const int is_root = rank->rank == root;
  float* const shard = calloc(kCount, sizeof(float));
  float* const full = calloc(n * kCount, sizeof(float));
  float* const of_root = is_root ? full : NULL;
  for (size_t i = 0; i < kCount; ++i) shard[i] = (float)i + (float)rank->rank;

  CHECK_OK(rank, shardcomm_gather(comm, shard, of_root, kCount, SHARDCOMM_F32, root, kHere, NULL));
  for (size_t r = 0; is_root && r < n; ++r) CHECK(rank, full[r * kCount + 7] == 7.0f + (float)r);

  for (size_t i = 0; i < n * kCount; ++i) full[i] = (float)i;
  CHECK_OK(rank, shardcomm_scatter(comm, of_root, shard, kCount, SHARDCOMM_F32, root, kHere, NULL));
  CHECK(rank, shard[7] == (float)((size_t)rank->rank * kCount + 7));

  for (size_t i = 0; i < kCount; ++i) shard[i] = (float)i;
  CHECK_OK(rank, shardcomm_reduce(comm, shard, of_root, kCount, SHARDCOMM_F32, SHARDCOMM_SUM, root, kHere, NULL));
  if (is_root) CHECK(rank, full[7] == 7.0f * (float)n);
  CHECK(rank, shard[7] == 7.0f);

  CHECK_CODE(rank, shardcomm_gather(comm, shard, full, 1, SHARDCOMM_F32, rank->size, kHere, NULL),
             SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "out of range");
  CHECK_CODE(rank, shardcomm_scatter(comm, full, NULL, 1, SHARDCOMM_F32, 0, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_reduce(comm, shard, full, 1, SHARDCOMM_F32, 99, 0, kHere, NULL),
             SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_gather(NULL, shard, full, 1, SHARDCOMM_F32, 0, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  free(shard);
  free(full);
}

/* Rank r gives r + s elements to rank s. */
static void test_all_to_all_v(test_rank* rank, shardcomm_comm* comm) {
  size_t counts[kMostRanks], at = 0;
  int64_t in[kMostRanks * 2 * kMostRanks], out[kMostRanks * 2 * kMostRanks];
  shardcomm_work* work = NULL;
  for (int s = 0; s < rank->size; ++s) {
    counts[s] = (size_t)(rank->rank + s);
    for (size_t i = 0; i < counts[s]; ++i) in[at++] = 100 * rank->rank + s;
  }
  CHECK_OK(rank, shardcomm_all_to_all_v(comm, in, counts, out, counts, SHARDCOMM_I64, kHere, &work));
  CHECK_OK(rank, shardcomm_work_synchronize(work, 1000));
  shardcomm_work_release(work);
  at = 0;
  for (int s = 0; s < rank->size; ++s) {
    for (size_t i = 0; i < counts[s]; ++i) CHECK(rank, out[at++] == 100 * s + rank->rank);
  }
  CHECK_CODE(rank, shardcomm_all_to_all_v(comm, in, NULL, out, counts, SHARDCOMM_I64, kHere, NULL),
             SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_all_to_all_v(comm, in, counts, out, NULL, SHARDCOMM_I64, kHere, NULL),
             SHARDCOMM_INVALID_ARGUMENT);
}

static void test_many(test_rank* rank, shardcomm_comm* comm) {
  const int n = rank->size;
  double most = rank->rank;
  int32_t sums[3] = {rank->rank, 1, 2}, kept[3];
  uint8_t flag = (uint8_t)(rank->rank == n - 1 ? 77 : 0);
  float values[2] = {(float)rank->rank, 2.5f};
  const shardcomm_all_reduce_item reductions[] = {{&most, &most, 1, SHARDCOMM_F64, SHARDCOMM_MAX},
                                                  {sums, kept, 3, SHARDCOMM_I32, SHARDCOMM_SUM}};
  const shardcomm_broadcast_item broadcasts[] = {{&flag, 1, SHARDCOMM_U8}, {values, 2, SHARDCOMM_F32}};
  CHECK_OK(rank, shardcomm_all_reduce_many(comm, reductions, 2, kHere, NULL));
  CHECK(rank, most == n - 1);
  CHECK(rank, kept[0] == n * (n - 1) / 2 && kept[1] == n && kept[2] == 2 * n);
  CHECK_OK(rank, shardcomm_broadcast_many(comm, broadcasts, 2, n - 1, kHere, NULL));
  CHECK(rank, flag == 77 && values[0] == (float)(n - 1) && values[1] == 2.5f);
  CHECK_OK(rank, shardcomm_all_reduce_many(comm, NULL, 0, kHere, NULL));
  CHECK_OK(rank, shardcomm_broadcast_many(comm, NULL, 0, 0, kHere, NULL));
  CHECK_CODE(rank, shardcomm_all_reduce_many(comm, NULL, 1, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_broadcast_many(comm, NULL, 1, 0, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_broadcast_many(comm, broadcasts, 2, -1, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
}

/* The last call on a communicator: the counts of one pair differ. */
static void test_counts_that_differ(test_rank* rank, shardcomm_comm* comm) {
  size_t in_counts[kMostRanks], out_counts[kMostRanks];
  uint8_t in[2 * kMostRanks] = {0}, out[2 * kMostRanks];
  for (int s = 0; s < rank->size; ++s) in_counts[s] = out_counts[s] = 1;
  if (rank->rank == 0) in_counts[rank->size - 1] = 2;
  CHECK_CODE(rank, shardcomm_all_to_all_v(comm, in, in_counts, out, out_counts, SHARDCOMM_U8, kHere, NULL),
             SHARDCOMM_FAILED_PRECONDITION);
  CHECK_ERROR_SAYS(rank, "rank 0 gives 2 elements to rank");
  CHECK_ERROR_SAYS(rank, "which expects 1");
}

static void be_rank(test_rank* rank) {
  shardcomm_store* store = NULL;
  CHECK_OK(rank, shardcomm_store_open(rank->uri, &store));
  if (store == NULL) return;
  shardcomm_comm* comm = make_comm(rank, store, "timeout_ms=10000,init_timeout_ms=10000");
  shardcomm_store_close(store);
  if (comm == NULL) return;
  test_roots(rank, comm);
  test_all_to_all_v(rank, comm);
  test_many(rank, comm);
  test_counts_that_differ(rank, comm);
  shardcomm_comm_destroy(comm);
}

int main(void) {
  int failures = 0;
  for (int size = 1; size <= 4; ++size) {
    char uri[64];
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d", free_port());
    failures += run_processes(size, uri, be_rank);
  }
  for (int size = 1; size <= 4; ++size) {
    char uri[64];
    snprintf(uri, sizeof uri, "local://c-api-rooted-%d", size);
    failures += run_threads(size, uri, be_rank);
  }
  if (failures != 0) fprintf(stderr, "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
