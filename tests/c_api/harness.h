/* Ranks for tests in C: as threads over a local store, and as forked processes over tcp. C11, c.h and POSIX only. */
#ifndef SHARDCOMM_TESTS_C_API_HARNESS_H_
#define SHARDCOMM_TESTS_C_API_HARNESS_H_
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shardcomm/c.h"

enum { kMostRanks = 8 };

/* What a rank's function is given. `failures` counts its failed checks. */
typedef struct {
  int rank, size;
  const char* uri;
  int failures;
} test_rank;

#define CHECK(rank, condition)                                                                              \
  do {                                                                                                      \
    if (!(condition)) {                                                                                     \
      fprintf(stderr, "%s:%d: rank %d: %s; last error: %s\n", __FILE__, __LINE__, (rank)->rank, #condition, \
              shardcomm_last_error());                                                                      \
      ++(rank)->failures;                                                                                   \
    }                                                                                                       \
  } while (0)

#define CHECK_OK(rank, call) CHECK(rank, (call) == SHARDCOMM_OK)
#define CHECK_CODE(rank, call, code) CHECK(rank, (call) == (code))
#define CHECK_ERROR_SAYS(rank, word) CHECK(rank, strstr(shardcomm_last_error(), word) != NULL)

typedef void (*rank_function)(test_rank*);

typedef struct {
  test_rank rank;
  rank_function function;
} rank_start;

static inline void* run_rank_thread(void* argument) {
  rank_start* start = (rank_start*)argument;
  start->function(&start->rank);
  return NULL;
}

static inline int run_threads(int size, const char* uri, rank_function function) {
  pthread_t threads[kMostRanks];
  rank_start starts[kMostRanks];
  int failures = 0;
  for (int r = 0; r < size; ++r) {
    starts[r] = (rank_start){{r, size, uri, 0}, function};
    if (pthread_create(&threads[r], NULL, run_rank_thread, &starts[r]) != 0) abort();
  }
  for (int r = 0; r < size; ++r) {
    pthread_join(threads[r], NULL);
    failures += starts[r].rank.failures;
  }
  return failures;
}

static inline int run_processes(int size, const char* uri, rank_function function) {
  pid_t processes[kMostRanks];
  int failures = 0;
  fflush(NULL);
  for (int r = 0; r < size; ++r) {
    processes[r] = fork();
    if (processes[r] < 0) abort();
    if (processes[r] == 0) {
      test_rank rank = {r, size, uri, 0};
      alarm(60);
      function(&rank);
      fflush(NULL);
      _exit(rank.failures == 0 ? 0 : 1);
    }
  }
  for (int r = 0; r < size; ++r) {
    int status = 0;
    waitpid(processes[r], &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    fprintf(stderr, "rank %d ended with wait status %d\n", r, status);
    ++failures;
  }
  return failures;
}

/* A port that is free now, on the loopback. */
static inline int free_port(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof address;
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0 || bind(fd, (struct sockaddr*)&address, length) != 0 ||
      getsockname(fd, (struct sockaddr*)&address, &length) != 0)
    abort();
  close(fd);
  return ntohs(address.sin_port);
}

static inline shardcomm_comm* make_comm(test_rank* rank, shardcomm_store* store, const char* options) {
  shardcomm_comm_params params;
  shardcomm_comm* comm = NULL;
  memset(&params, 0, sizeof params);
  params.struct_size = sizeof params;
  params.rank = rank->rank;
  params.world_size = rank->size;
  params.options = options;
  CHECK_OK(rank, shardcomm_comm_create(store, &params, &comm));
  return comm;
}

#endif
