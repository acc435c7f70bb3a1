/* Stores made of the caller's own functions: here values are files of a directory. Communicators meet over them, and
   what the functions fail with is told to all ranks that can be told. Ranks are threads and processes. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "tests/c_api/harness.h"

static const shardcomm_stream kHere = {0, 0, NULL};

/* One rank's store. Its `fails_at`-th set or get, counted from 1, ends in `code`, and says why if it can. */
typedef struct {
  const char* directory;
  int sets, gets, closes;
  int set_fails_at, get_fails_at;
  shardcomm_code code;
  const char* why;
  int gives_nothing; /* gets succeed without a value */
} file_store;

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Keys have slashes, file names must not. */
static void path_of(const file_store* store, const char* key, char* path, size_t capacity) {
  const int length = snprintf(path, capacity, "%s/", store->directory);
  for (size_t i = 0; key[i] != '\0' && (size_t)length + i + 1 < capacity; ++i) {
    path[(size_t)length + i] = key[i] == '/' ? '+' : key[i];
    path[(size_t)length + i + 1] = '\0';
  }
}

static shardcomm_code set_file(void* user, const char* key, const void* bytes, size_t count) {
  file_store* store = user;
  char path[512], temporary[600];
  if (++store->sets == store->set_fails_at) return store->code;
  path_of(store, key, path, sizeof path);
  snprintf(temporary, sizeof temporary, "%s.tmp.%d.%p", path, (int)getpid(), user);
  FILE* file = fopen(temporary, "wb");
  if (file == NULL) return SHARDCOMM_SYSTEM;
  const size_t written = fwrite(bytes, 1, count, file);
  if (fclose(file) != 0 || written != count || rename(temporary, path) != 0) return SHARDCOMM_SYSTEM;
  return SHARDCOMM_OK;
}

static shardcomm_code get_file(void* user, const char* key, int64_t timeout_ms, shardcomm_store_sink give, void* sink) {
  file_store* store = user;
  char path[512];
  const double end = seconds_now() + 1e-3 * (double)timeout_ms;
  const struct timespec pause = {0, 1000 * 1000};
  if (++store->gets == store->get_fails_at) {
    if (store->why != NULL) give(sink, store->why, strlen(store->why));
    return store->code;
  }
  path_of(store, key, path, sizeof path);
  FILE* file = NULL;
  while ((file = fopen(path, "rb")) == NULL) {
    if (seconds_now() >= end) return SHARDCOMM_TIMED_OUT;
    nanosleep(&pause, NULL);
  }
  static const size_t kMost = 1 << 20;
  char* bytes = malloc(kMost);
  const size_t count = fread(bytes, 1, kMost, file);
  fclose(file);
  if (!store->gives_nothing) give(sink, bytes, count);
  free(bytes);
  return SHARDCOMM_OK;
}

static void close_file(void* user) { ++((file_store*)user)->closes; }

static shardcomm_store* make_store(test_rank* rank, file_store* files) {
  shardcomm_store_callbacks callbacks;
  shardcomm_store* store = NULL;
  shardcomm_store_callbacks_init(&callbacks);
  callbacks.user = files;
  callbacks.set = set_file;
  callbacks.get = get_file;
  callbacks.close = close_file;
  CHECK_OK(rank, shardcomm_store_create(&callbacks, &store));
  return store;
}

/* Meets over `files` and returns the code; the communicator, if there is one, has been used and is gone. */
static shardcomm_code meet(test_rank* rank, file_store* files, const char* options) {
  shardcomm_comm_params params;
  shardcomm_comm* comm = NULL;
  shardcomm_store* store = make_store(rank, files);
  int32_t sum = 0;
  const int32_t mine = rank->rank + 1;
  shardcomm_comm_params_init(&params);
  params.rank = rank->rank;
  params.world_size = rank->size;
  params.options = options;
  const shardcomm_code code = shardcomm_comm_create(store, &params, &comm);
  CHECK(rank, (comm != NULL) == (code == SHARDCOMM_OK) && files->closes == 0);
  shardcomm_store_close(store);
  CHECK(rank, files->closes == 1);
  if (comm == NULL) return code;
  CHECK_OK(rank, shardcomm_all_reduce(comm, &mine, &sum, 1, SHARDCOMM_I32, SHARDCOMM_SUM, kHere, NULL));
  CHECK(rank, sum == rank->size * (rank->size + 1) / 2);
  shardcomm_comm_destroy(comm);
  return code;
}

static void meet_well(test_rank* rank) {
  file_store files = {.directory = rank->uri};
  CHECK_OK(rank, meet(rank, &files, "init_timeout_ms=20000"));
  CHECK(rank, rank->size == 1 || (files.sets > 0 && files.gets > 0));
}

/* Rank 0 tells the others what its get failed with. */
static void fail_get_of_rank_0(test_rank* rank) {
  file_store files = {.directory = rank->uri, .code = SHARDCOMM_DATA_LOSS, .why = "the disk is gone"};
  if (rank->rank == 0) files.get_fails_at = 1;
  const double begin = seconds_now();
  CHECK_CODE(rank, meet(rank, &files, "init_timeout_ms=20000"), SHARDCOMM_DATA_LOSS);
  CHECK(rank, seconds_now() - begin < 10);
  CHECK_ERROR_SAYS(rank, "the store's get of key '");
  CHECK_ERROR_SAYS(rank, "on rank 0 failed: the disk is gone");
}

/* A rank that cannot read the result tells rank 0, which does not wait for the deadline. */
static void fail_get_of_rank_1(test_rank* rank) {
  file_store files = {.directory = rank->uri, .code = SHARDCOMM_UNAVAILABLE, .why = "no permission"};
  if (rank->rank == 1) files.get_fails_at = 1;
  const double begin = seconds_now();
  if (rank->rank > 1) return; /* what ranks 0 and 1 do is known */
  CHECK_CODE(rank, meet(rank, &files, "init_timeout_ms=20000"), SHARDCOMM_UNAVAILABLE);
  CHECK(rank, seconds_now() - begin < 10);
  CHECK_ERROR_SAYS(rank, "on rank 1 failed: no permission");
}

/* A rank whose set fails knows it at once; it cannot tell the others, who name it when their time is up. */
static void fail_set_of_rank_1(test_rank* rank) {
  file_store files = {.directory = rank->uri, .code = SHARDCOMM_SYSTEM};
  if (rank->rank == 1) files.set_fails_at = 1;
  const double begin = seconds_now();
  const shardcomm_code code = meet(rank, &files, "init_timeout_ms=1500");
  const double took = seconds_now() - begin;
  if (rank->rank == 1) {
    CHECK(rank, code == SHARDCOMM_SYSTEM && took < 1);
    CHECK_ERROR_SAYS(rank, "the store's set of key '");
    CHECK_ERROR_SAYS(rank, "on rank 1 failed");
  } else {
    CHECK(rank, code == SHARDCOMM_TIMED_OUT && took > 1 && took < 10);
    CHECK_ERROR_SAYS(rank, "rank 1");
  }
}

static void give_nothing(test_rank* rank) {
  file_store files = {.directory = rank->uri, .gives_nothing = rank->rank == 0};
  CHECK_CODE(rank, meet(rank, &files, "init_timeout_ms=20000"), SHARDCOMM_FAILED_PRECONDITION);
  CHECK_ERROR_SAYS(rank, "on rank 0 succeeded and gave no value");
}

static void return_nonsense(test_rank* rank) {
  file_store files = {.directory = rank->uri, .code = -5, .get_fails_at = rank->rank == 0 ? 1 : 0};
  CHECK_CODE(rank, meet(rank, &files, "init_timeout_ms=20000"), SHARDCOMM_SYSTEM);
  CHECK_ERROR_SAYS(rank, "returned -5, which is not a shardcomm_code");
}

/* The last rank does not come. */
static void miss_one(test_rank* rank) {
  file_store files = {.directory = rank->uri};
  const double begin = seconds_now();
  if (rank->rank == rank->size - 1) return;
  CHECK_CODE(rank, meet(rank, &files, "init_timeout_ms=700"), SHARDCOMM_TIMED_OUT);
  CHECK(rank, seconds_now() - begin < 5);
  CHECK_ERROR_SAYS(rank, "rank 2 of 3 did not come in time");
}

static void test_refused_callbacks(test_rank* rank) {
  file_store files = {.directory = "."};
  shardcomm_store* const untouched = (shardcomm_store*)&files;
  shardcomm_store* store = untouched;
  shardcomm_store_callbacks callbacks;
  memset(&callbacks, 0, sizeof callbacks);
  CHECK_CODE(rank, shardcomm_store_create(NULL, &store), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_store_create(&callbacks, &store), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "shardcomm_store_callbacks_init");
  shardcomm_store_callbacks_init(&callbacks);
  callbacks.user = &files;
  callbacks.close = close_file;
  CHECK_CODE(rank, shardcomm_store_create(&callbacks, &store), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "callbacks.set is NULL");
  callbacks.set = set_file;
  CHECK_CODE(rank, shardcomm_store_create(&callbacks, &store), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "callbacks.get is NULL");
  callbacks.get = get_file;
  CHECK_CODE(rank, shardcomm_store_create(&callbacks, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK(rank, store == untouched && files.closes == 0);
  callbacks.close = NULL;
  CHECK_OK(rank, shardcomm_store_create(&callbacks, &store));
  shardcomm_store_close(store);
}

static void remove_directory(const char* path) {
  char command[600];
  snprintf(command, sizeof command, "rm -rf '%s'", path);
  if (system(command) != 0) abort();
}

/* Each group has a directory of its own, whose path is the ranks' uri. */
static int run(int size, rank_function function) {
  int failures = 0;
  for (int as_threads = 0; as_threads < 2; ++as_threads) {
    char directory[] = "/tmp/shardcomm-c-api-store-XXXXXX";
    if (mkdtemp(directory) == NULL) abort();
    failures += (as_threads ? run_threads : run_processes)(size, directory, function);
    remove_directory(directory);
  }
  return failures;
}

int main(void) {
  int failures = 0;
  test_rank alone = {0, 1, "", 0};
  for (int size = 1; size <= 4; ++size) failures += run(size, meet_well);
  failures += run(3, fail_get_of_rank_0);
  failures += run(2, fail_get_of_rank_1);
  failures += run(3, fail_set_of_rank_1);
  failures += run(3, give_nothing);
  failures += run(3, return_nonsense);
  failures += run(3, miss_one);
  test_refused_callbacks(&alone);
  failures += alone.failures;
  if (failures != 0) fprintf(stderr, "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
