/* Timeouts and callbacks of works, from C. */
#include <time.h>

#include "tests/c_api/harness.h"

static const shardcomm_stream kHere = {0, 0, NULL};

typedef struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int calls;
  shardcomm_code code;
  char message[256];
} outcome;

static void remember(void* user, shardcomm_code code, const char* message) {
  outcome* told = user;
  pthread_mutex_lock(&told->mutex);
  ++told->calls;
  told->code = code;
  snprintf(told->message, sizeof told->message, "%s", message);
  pthread_cond_signal(&told->changed);
  pthread_mutex_unlock(&told->mutex);
}

static void await_calls(outcome* told, int calls) {
  pthread_mutex_lock(&told->mutex);
  while (told->calls < calls) pthread_cond_wait(&told->changed, &told->mutex);
  pthread_mutex_unlock(&told->mutex);
}

static void sleep_ms(long ms) {
  const struct timespec time = {0, ms * 1000000};
  nanosleep(&time, NULL);
}

static void test_success(test_rank* rank, shardcomm_comm* comm, shardcomm_stream stream) {
  outcome told = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, -1, "unset"};
  shardcomm_work* work = NULL;
  CHECK_OK(rank, shardcomm_barrier(comm, stream, &work));
  CHECK_OK(rank, shardcomm_work_on_done(work, remember, &told));
  CHECK_OK(rank, shardcomm_work_on_done(work, remember, &told));
  CHECK_CODE(rank, shardcomm_work_on_done(NULL, remember, &told), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_work_on_done(work, NULL, &told), SHARDCOMM_INVALID_ARGUMENT);
  shardcomm_work_release(work);
  await_calls(&told, 2);
  CHECK(rank, told.code == SHARDCOMM_OK && told.message[0] == '\0');
}

/* The last test: the communicator has failed after it. */
static void test_timeouts(test_rank* rank, shardcomm_comm* comm, shardcomm_stream stream) {
  outcome told = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, -1, "unset"};
  CHECK_CODE(rank, shardcomm_comm_set_timeout(comm, -1), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "-1 ms");
  CHECK_CODE(rank, shardcomm_comm_set_timeout(NULL, 1), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_OK(rank, shardcomm_comm_set_timeout(comm, INT64_MAX));
  CHECK_OK(rank, shardcomm_comm_set_timeout(comm, 0));
  if (rank->rank == 0) CHECK_OK(rank, shardcomm_comm_set_timeout(comm, 50));
  if (rank->rank == 1) sleep_ms(300);
  shardcomm_work* work = NULL;
  const shardcomm_code code = shardcomm_barrier(comm, stream, &work);
  if (rank->rank == 1) { /* the others have failed before it called */
    CHECK(rank, code == SHARDCOMM_TIMED_OUT);
    return;
  }
  CHECK(rank, code == SHARDCOMM_OK);
  CHECK_OK(rank, shardcomm_work_on_done(work, remember, &told));
  shardcomm_work_release(work);
  await_calls(&told, 1);
  CHECK(rank, told.code == SHARDCOMM_TIMED_OUT && strstr(told.message, "waiting for rank 1") != NULL);
}

static void be_rank(test_rank* rank) {
  shardcomm_store* store = NULL;
  shardcomm_stream stream;
  CHECK_OK(rank, shardcomm_store_open(rank->uri, &store));
  if (store == NULL) return;
  shardcomm_comm* comm = make_comm(rank, store, "timeout_ms=20000,init_timeout_ms=10000");
  shardcomm_store_close(store);
  if (comm == NULL) return;
  CHECK_OK(rank, shardcomm_host_stream_create("concurrency", &stream));
  test_success(rank, comm, kHere);
  test_success(rank, comm, stream);
  if (rank->size > 1) test_timeouts(rank, comm, stream);
  shardcomm_host_stream_destroy(stream);
  shardcomm_comm_destroy(comm);
}

int main(void) {
  int failures = 0;
  for (int size = 1; size <= 3; ++size) {
    char uri[64];
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d", free_port());
    failures += run_processes(size, uri, be_rank);
    snprintf(uri, sizeof uri, "local://c-api-concurrency-%d", size);
    failures += run_threads(size, uri, be_rank);
  }
  if (failures != 0) fprintf(stderr, "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
