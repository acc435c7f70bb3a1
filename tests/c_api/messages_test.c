/* Messages between two ranks, and communicators of some ranks, from C. */
#include "tests/c_api/harness.h"

enum { kCount = 5000 };

static const shardcomm_stream kHere = {0, 0, NULL};

/* Everybody sends to the right, the even ranks first. */
static void test_send_and_recv(test_rank* rank, shardcomm_comm* comm) {
  const int32_t right = (rank->rank + 1) % rank->size, left = (rank->rank + rank->size - 1) % rank->size;
  float* const out = calloc(kCount, sizeof(float));
  float* const in = calloc(kCount, sizeof(float));
  for (size_t i = 0; i < kCount; ++i) out[i] = (float)i + (float)rank->rank;
  if (rank->rank == 0) CHECK_OK(rank, shardcomm_send(comm, out, kCount, SHARDCOMM_F32, right, 7, kHere, NULL));
  CHECK_OK(rank, shardcomm_recv(comm, in, kCount, SHARDCOMM_F32, left, 7, kHere, NULL));
  if (rank->rank != 0) CHECK_OK(rank, shardcomm_send(comm, out, kCount, SHARDCOMM_F32, right, 7, kHere, NULL));
  CHECK(rank, in[kCount - 1] == (float)(kCount - 1) + (float)left);
  free(out);
  free(in);
}

static void test_streams(test_rank* rank, shardcomm_comm* comm) {
  const int32_t peer = rank->size - 1 - rank->rank;
  int32_t mine[kCount], theirs[kCount];
  shardcomm_stream sending, receiving;
  shardcomm_work *sent = NULL, *received = NULL;
  for (int i = 0; i < kCount; ++i) mine[i] = 10 * i + rank->rank;
  CHECK_OK(rank, shardcomm_host_stream_create("sending", &sending));
  CHECK_OK(rank, shardcomm_host_stream_create("receiving", &receiving));
  CHECK_OK(rank, shardcomm_send(comm, mine, kCount, SHARDCOMM_I32, peer, 1, sending, &sent));
  CHECK_OK(rank, shardcomm_recv(comm, theirs, kCount, SHARDCOMM_I32, peer, 1, receiving, &received));
  CHECK_OK(rank, shardcomm_work_synchronize(sent, 10000));
  CHECK_OK(rank, shardcomm_work_synchronize(received, 10000));
  CHECK(rank, theirs[3] == 30 + peer);
  shardcomm_work_release(sent);
  shardcomm_work_release(received);
  shardcomm_host_stream_destroy(sending);
  shardcomm_host_stream_destroy(receiving);
}

/* A struct of a later version, in an array that is stepped by its own size. */
typedef struct {
  shardcomm_message known;
  uint64_t later;
} later_message;

static void test_many(test_rank* rank, shardcomm_comm* comm) {
  const int32_t peer = rank->size - 1 - rank->rank;
  double mine[kCount], theirs[kCount];
  shardcomm_message messages[2];
  later_message later[2];
  for (int i = 0; i < kCount; ++i) mine[i] = i + 0.5 * rank->rank;
  for (int m = 0; m < 2; ++m) {
    shardcomm_message_init(&messages[m]);
    CHECK(rank, messages[m].struct_size == sizeof messages[m] && messages[m].dtype == SHARDCOMM_F32);
    messages[m].direction = m == 0 ? SHARDCOMM_SEND : SHARDCOMM_RECV;
    messages[m].dtype = SHARDCOMM_F64;
    messages[m].peer = peer;
    messages[m].tag = 2;
    messages[m].data = m == 0 ? mine : theirs;
    messages[m].count = kCount;
    messages[m].label = "both ways";
    messages[m].timeout_ms = 9000;
  }
  CHECK_OK(rank, shardcomm_send_recv_many(comm, messages, 2, kHere, NULL));
  CHECK(rank, theirs[3] == 3 + 0.5 * peer);
  memset(later, 0, sizeof later);
  memset(theirs, 0, sizeof theirs);
  for (int m = 0; m < 2; ++m) {
    later[m].known = messages[m];
    later[m].known.struct_size = sizeof later[m];
  }
  CHECK_OK(rank, shardcomm_send_recv_many(comm, &later[0].known, 2, kHere, NULL));
  CHECK(rank, theirs[3] == 3 + 0.5 * peer);
  CHECK_OK(rank, shardcomm_send_recv_many(comm, NULL, 0, kHere, NULL));
  CHECK_CODE(rank, shardcomm_send_recv_many(comm, NULL, 1, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  messages[0].direction = 2;
  CHECK_CODE(rank, shardcomm_send_recv_many(comm, messages, 1, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "SHARDCOMM_RECV");
  messages[0].direction = SHARDCOMM_SEND;
  messages[0].timeout_ms = -1;
  CHECK_CODE(rank, shardcomm_send_recv_many(comm, messages, 1, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
}

static void test_refusals(test_rank* rank, shardcomm_comm* comm) {
  float value = 1;
  CHECK_CODE(rank, shardcomm_send(comm, &value, 1, SHARDCOMM_F32, rank->size, 0, kHere, NULL),
             SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "peer");
  CHECK_CODE(rank, shardcomm_recv(comm, &value, 1, SHARDCOMM_F32, 0, -3, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "tag -3");
  CHECK_CODE(rank, shardcomm_recv(comm, &value, 1, 77, 0, 0, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_send(NULL, &value, 1, SHARDCOMM_F32, 0, 0, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
}

static void test_subgroup(test_rank* rank, shardcomm_comm* comm) {
  const int32_t ranks[] = {rank->size - 1, 0};
  const size_t count = rank->size == 1 ? 1 : 2;
  shardcomm_comm* ends = NULL;
  if (rank->rank == 0 || rank->rank == rank->size - 1) {
    CHECK_OK(rank, shardcomm_comm_subgroup(comm, ranks, count, "ends", &ends));
    CHECK(rank, shardcomm_comm_size(ends) == (int32_t)count);
    CHECK(rank, shardcomm_comm_rank(ends) == (rank->rank == rank->size - 1 ? 0 : 1));
    CHECK_OK(rank, shardcomm_barrier(ends, kHere, NULL));
    shardcomm_comm_destroy(ends);
  }
  CHECK_CODE(rank, shardcomm_comm_subgroup(comm, NULL, 1, "x", &ends), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_comm_subgroup(comm, ranks, SIZE_MAX, "x", &ends), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_comm_subgroup(comm, ranks, 1, "x", NULL), SHARDCOMM_INVALID_ARGUMENT);
}

static void test_a_longer_message(test_rank* rank, shardcomm_comm* comm) {
  float values[4] = {0};
  shardcomm_code code = SHARDCOMM_OK;
  if (rank->rank == 0) code = shardcomm_send(comm, values, 4, SHARDCOMM_F32, rank->size - 1, 3, kHere, NULL);
  if (code == SHARDCOMM_OK && rank->rank == rank->size - 1)
    code = shardcomm_recv(comm, values, 3, SHARDCOMM_F32, 0, 3, kHere, NULL);
  if (code == SHARDCOMM_OK) code = shardcomm_barrier(comm, kHere, NULL);
  CHECK(rank, code == SHARDCOMM_FAILED_PRECONDITION);
  CHECK_ERROR_SAYS(rank, "send f32 4");
  CHECK_ERROR_SAYS(rank, "recv f32 3");
}

static void be_rank(test_rank* rank) {
  shardcomm_store* store = NULL;
  CHECK_OK(rank, shardcomm_store_open(rank->uri, &store));
  if (store == NULL) return;
  shardcomm_comm* comm = make_comm(rank, store, "timeout_ms=10000,init_timeout_ms=10000");
  shardcomm_store_close(store);
  if (comm == NULL) return;
  if (rank->size > 1) test_send_and_recv(rank, comm);
  test_streams(rank, comm);
  test_many(rank, comm);
  test_refusals(rank, comm);
  test_subgroup(rank, comm);
  test_a_longer_message(rank, comm);
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
    snprintf(uri, sizeof uri, "local://c-api-messages-%d", size);
    failures += run_threads(size, uri, be_rank);
  }
  if (failures != 0) fprintf(stderr, "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
