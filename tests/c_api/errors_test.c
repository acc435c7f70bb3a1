/* The last error in numbers and in words, which are those of shardcomm_last_error without the code's name. Ranks are
   threads. */
#include <errno.h>

#include "tests/c_api/harness.h"

static const shardcomm_stream kHere = {0, 0, NULL};

/* The details fit the text, and neither says the code's name where it was said before. */
static void check_details(test_rank* rank, int32_t code) {
  shardcomm_error error = {.struct_size = sizeof error};
  const char* text = shardcomm_last_error();
  char begin[64], clause[64];
  CHECK_OK(rank, shardcomm_last_error_details(&error));
  CHECK(rank, error.code == code);
  snprintf(begin, sizeof begin, "%s: ", shardcomm_code_name(code));
  CHECK(rank, strncmp(text, begin, strlen(begin)) == 0 && strcmp(text + strlen(begin), error.message) == 0);
  for (int32_t c = SHARDCOMM_OK; c <= SHARDCOMM_DATA_LOSS; ++c) {
    snprintf(begin, sizeof begin, "%s: ", shardcomm_code_name(c));
    snprintf(clause, sizeof clause, ": %s: ", shardcomm_code_name(c));
    CHECK(rank, strncmp(error.message, begin, strlen(begin)) != 0);
    CHECK(rank, strstr(error.message, clause) == NULL);
  }
}

#define CHECK_FAILS(rank, call, code) \
  do {                                \
    CHECK_CODE(rank, call, code);     \
    check_details(rank, code);        \
  } while (0)

static void test_nothing_yet(test_rank* rank) {
  shardcomm_error error = {.struct_size = sizeof error, .code = 7};
  CHECK_OK(rank, shardcomm_last_error_details(&error));
  CHECK(rank, error.code == SHARDCOMM_OK && error.origin == SHARDCOMM_ORIGIN_NONE && error.native_code == 0);
  CHECK(rank, error.message != NULL && strcmp(error.message, "") == 0);
}

/* The directory of a file store cannot be made below a file. */
static void test_native_code(test_rank* rank) {
  shardcomm_store* store = NULL;
  shardcomm_comm* comm = NULL;
  shardcomm_comm_params params;
  shardcomm_error error = {.struct_size = sizeof error};
  shardcomm_comm_params_init(&params);
  CHECK_OK(rank, shardcomm_store_open("file:///dev/null/meeting", &store));
  const shardcomm_code code = shardcomm_comm_create(store, &params, &comm);
  CHECK(rank, code != SHARDCOMM_OK);
  check_details(rank, code);
  CHECK_OK(rank, shardcomm_last_error_details(&error));
  CHECK(rank, error.origin == SHARDCOMM_ORIGIN_ERRNO && error.native_code == ENOTDIR);
  CHECK(rank, strstr(error.message, "ENOTDIR") != NULL);
  shardcomm_store_close(store);
}

static void test_details_grow(test_rank* rank) {
  struct {
    shardcomm_error error;
    size_t later;
  } larger = {.error = {.struct_size = sizeof larger}, .later = 5};
  shardcomm_error zeroed = {0};
  CHECK_FAILS(rank, shardcomm_store_open("carrier-pigeon://x", NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_OK(rank, shardcomm_last_error_details(&larger.error));
  CHECK(rank, larger.error.code == SHARDCOMM_INVALID_ARGUMENT && larger.later == 0);
  CHECK(rank, strcmp(larger.error.message, "out is NULL") == 0);
  /* Its own failures leave the last error as it is. */
  CHECK_CODE(rank, shardcomm_last_error_details(&zeroed), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_last_error_details(NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "out is NULL");
}

static shardcomm_comm* meet(test_rank* rank, const char* what, const char* options) {
  char uri[96];
  shardcomm_store* store = NULL;
  snprintf(uri, sizeof uri, "%s-%s", rank->uri, what);
  CHECK_OK(rank, shardcomm_store_open(uri, &store));
  shardcomm_comm* comm = make_comm(rank, store, options);
  shardcomm_store_close(store);
  return comm;
}

/* Errors that went through other ranks, streams and health come out with the code's name said once. */
static void test_errors_of_groups(test_rank* rank) {
  float value = 1;
  shardcomm_stream stream;
  shardcomm_work* work = NULL;

  shardcomm_comm* comm = meet(rank, "mismatch", "timeout_ms=20000");
  const size_t count = rank->rank == 0 ? 1 : 0;
  CHECK_FAILS(rank, shardcomm_all_reduce(comm, &value, &value, count, SHARDCOMM_F32, SHARDCOMM_SUM, kHere, NULL),
              SHARDCOMM_FAILED_PRECONDITION);
  CHECK_FAILS(rank, shardcomm_comm_health(comm), SHARDCOMM_FAILED_PRECONDITION);
  CHECK_FAILS(rank, shardcomm_barrier(comm, kHere, NULL), SHARDCOMM_FAILED_PRECONDITION);
  shardcomm_comm_destroy(comm);

  comm = meet(rank, "abort", "timeout_ms=20000");
  CHECK_OK(rank, shardcomm_host_stream_create("errors", &stream));
  if (rank->rank == 0) shardcomm_comm_abort(comm, "seen enough");
  CHECK_FAILS(rank, shardcomm_barrier(comm, kHere, NULL), SHARDCOMM_ABORTED);
  shardcomm_comm_destroy(comm);

  comm = meet(rank, "late", "timeout_ms=300");
  if (rank->rank == 0) {
    CHECK_OK(rank, shardcomm_barrier(comm, stream, &work));
    CHECK_FAILS(rank, shardcomm_work_synchronize(work, 20000), SHARDCOMM_TIMED_OUT);
    CHECK_FAILS(rank, shardcomm_barrier(comm, stream, NULL), SHARDCOMM_TIMED_OUT);
    CHECK_FAILS(rank, shardcomm_comm_health(comm), SHARDCOMM_TIMED_OUT);
    shardcomm_work_release(work);
  } else {
    const struct timespec pause = {0, 800 * 1000 * 1000};
    nanosleep(&pause, NULL);
    const shardcomm_code code = shardcomm_barrier(comm, kHere, NULL);
    CHECK(rank, code != SHARDCOMM_OK);
    check_details(rank, code);
  }
  shardcomm_host_stream_destroy(stream);
  shardcomm_comm_destroy(comm);
}

static void* fail_elsewhere(void* argument) {
  test_rank* rank = argument;
  test_nothing_yet(rank);
  CHECK_CODE(rank, shardcomm_comm_health(NULL), SHARDCOMM_INVALID_ARGUMENT);
  return NULL;
}

static void test_threads_have_their_own(test_rank* rank) {
  pthread_t other;
  CHECK_CODE(rank, shardcomm_store_open(NULL, NULL), SHARDCOMM_INVALID_ARGUMENT);
  if (pthread_create(&other, NULL, fail_elsewhere, rank) != 0) abort();
  pthread_join(other, NULL);
  CHECK_ERROR_SAYS(rank, "uri is NULL");
}

static void be_rank(test_rank* rank) {
  test_nothing_yet(rank);
  test_native_code(rank);
  test_details_grow(rank);
  test_threads_have_their_own(rank);
  test_errors_of_groups(rank);
}

int main(void) {
  const int failures = run_threads(2, "local://c-api-errors", be_rank);
  shardcomm_string_free(NULL);
  if (failures != 0) fprintf(stderr, "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
