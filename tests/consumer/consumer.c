/* Two ranks as threads sum what each has. */
#include <pthread.h>
#include <shardcomm/c.h>
#include <stdio.h>

enum { kCount = 1000, kRanks = 2 };

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, shardcomm_last_error());
  return 1;
}

static int sum(int32_t rank) {
  shardcomm_store* store = NULL;
  shardcomm_comm* comm = NULL;
  const shardcomm_comm_params params = {
      .struct_size = sizeof params, .rank = rank, .world_size = kRanks, .options = "timeout_ms=20000"};
  const shardcomm_stream caller = {0, 0, NULL};
  float in[kCount], out[kCount];
  if (shardcomm_store_open("local://consumer-c", &store) != 0) return failed("open a store");
  if (shardcomm_comm_create(store, &params, &comm) != 0) return failed("create a communicator");
  for (int i = 0; i < kCount; ++i) in[i] = (float)(rank + i);
  if (shardcomm_all_reduce(comm, in, out, kCount, SHARDCOMM_F32, SHARDCOMM_SUM, caller, NULL) != 0)
    return failed("all-reduce");
  for (int i = 0; i < kCount; ++i) {
    if (out[i] != (float)(2 * i + 1)) return fprintf(stderr, "wrong element %d: %g\n", i, (double)out[i]), 1;
  }
  shardcomm_comm_destroy(comm);
  shardcomm_store_close(store);
  return 0;
}

static void* other_rank(void* outcome) {
  *(int*)outcome = sum(1);
  return NULL;
}

int main(void) {
  pthread_t other;
  int theirs = 1;
  if (pthread_create(&other, NULL, other_rank, &theirs) != 0) return 1;
  const int mine = sum(0);
  pthread_join(other, NULL);
  if (mine + theirs != 0) return 1;
  puts("summed");
  return 0;
}
