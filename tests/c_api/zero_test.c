/* The ZeRO part of the C ABI, from C11: two ranks as threads gather a parameter, reduce its gradient and take a step,
   with the library's optimizer and with one of their own. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shardcomm/c.h"

enum { kRanks = 2, kCount = 5 };

#define REQUIRE(condition)                                                                                    \
  do {                                                                                                        \
    if (!(condition)) {                                                                                       \
      fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, shardcomm_last_error()); \
      exit(1);                                                                                                \
    }                                                                                                         \
  } while (0)

static void fill(void* user, uint32_t unit, uint32_t parameter, size_t offset, float* values, size_t count) {
  const float* start = user;
  REQUIRE(unit == 0 && parameter == 0);
  for (size_t i = 0; i < count; ++i) values[i] = *start + (float)(offset + i);
}

/* An update by hand: every master becomes 2, at stage 1 and in bf16, where a value that was written would be lost. */
static void update_by_hand(shardcomm_comm* comm) {
  const shardcomm_stream caller = {0, 0, NULL};
  const size_t shape[1] = {kCount};
  const shardcomm_tensor tensors[2] = {{sizeof tensors[0], "weight", shape, 1, SHARDCOMM_BF16, 1, 1, NULL},
                                       {sizeof tensors[0], "frozen", shape, 1, SHARDCOMM_F32, 0, 1, NULL}};
  const shardcomm_unit unit = {sizeof unit, "layer", tensors, 2};
  shardcomm_zero_params params;
  shardcomm_zero_params_init(&params);
  params.stage = 1;
  shardcomm_zero* zero = NULL;
  REQUIRE(shardcomm_zero_create(comm, &unit, 1, &params, &zero) == SHARDCOMM_OK);

  REQUIRE(shardcomm_zero_publish(zero) == SHARDCOMM_FAILED_PRECONDITION); /* before begin_update */
  REQUIRE(strstr(shardcomm_last_error(), "begin_update") != NULL);
  REQUIRE(shardcomm_zero_begin_update(zero) == SHARDCOMM_OK);
  REQUIRE(shardcomm_zero_before(zero, 0, 0, caller) == SHARDCOMM_FAILED_PRECONDITION);
  for (size_t i = 0; i < shardcomm_zero_piece_count(zero); ++i) {
    shardcomm_piece piece;
    float* master = NULL;
    REQUIRE(shardcomm_zero_shard(zero, i, &piece) == SHARDCOMM_OK);
    REQUIRE(shardcomm_zero_shard_master(zero, i, &master) == SHARDCOMM_OK);
    REQUIRE((master == NULL) == (piece.parameter == 1) && (void*)master != piece.value);
    for (size_t k = 0; master != NULL && k < piece.count; ++k) master[k] = 2;
  }
  float* untouched = NULL;
  REQUIRE(shardcomm_zero_shard_master(zero, 99, &untouched) == SHARDCOMM_INVALID_ARGUMENT);
  REQUIRE(shardcomm_zero_publish_unit(zero, 9) == SHARDCOMM_INVALID_ARGUMENT);
  REQUIRE(shardcomm_zero_publish_unit(zero, 0) == SHARDCOMM_OK);
  REQUIRE(shardcomm_zero_publish(zero) == SHARDCOMM_OK);
  shardcomm_zero_zero_gradients(zero);
  REQUIRE(shardcomm_zero_synchronize(zero, 20000) == SHARDCOMM_OK);

  shardcomm_view view;
  REQUIRE(shardcomm_zero_before(zero, 0, 0, caller) == SHARDCOMM_OK);
  REQUIRE(shardcomm_zero_parameter(zero, 0, 0, &view) == SHARDCOMM_OK);
  for (size_t i = 0; i < kCount; ++i) REQUIRE(((const uint16_t*)view.value)[i] == 0x4000); /* 2 in bf16 */
  REQUIRE(shardcomm_zero_after(zero, 0, 0, caller) == SHARDCOMM_OK);
  REQUIRE(shardcomm_zero_finish_step(zero, caller) == SHARDCOMM_OK);
  shardcomm_zero_destroy(zero);
}

static void* run_rank(void* argument) {
  const int32_t rank = *(const int32_t*)argument;
  const shardcomm_stream caller = {0, 0, NULL};
  shardcomm_store* store = NULL;
  shardcomm_comm* comm = NULL;
  const shardcomm_comm_params where = {sizeof where, rank, kRanks, 0, 0, "timeout_ms=20000"};
  REQUIRE(shardcomm_store_open("local://c_api_zero_test", &store) == SHARDCOMM_OK);
  REQUIRE(shardcomm_comm_create(store, &where, &comm) == SHARDCOMM_OK);

  const size_t shape[1] = {kCount};
  const shardcomm_tensor tensor = {sizeof tensor, "weight", shape, 1, SHARDCOMM_F32, 1, 1, NULL};
  const shardcomm_unit unit = {sizeof unit, "layer", &tensor, 1};
  shardcomm_zero_params params;
  shardcomm_zero_params_init(&params);
  REQUIRE(params.stage == 3);
  shardcomm_zero* zero = NULL;
  REQUIRE(shardcomm_zero_create(comm, &unit, 1, &params, &zero) == SHARDCOMM_OK);
  float start = 10;
  REQUIRE(shardcomm_zero_fill(zero, fill, &start) == SHARDCOMM_OK);

  shardcomm_view view;
  REQUIRE(shardcomm_zero_parameter(zero, 0, 0, &view) == SHARDCOMM_FAILED_PRECONDITION);
  REQUIRE(shardcomm_zero_before(zero, 7, 0, caller) == SHARDCOMM_INVALID_ARGUMENT);
  REQUIRE(shardcomm_zero_before(zero, 0, 2, caller) == SHARDCOMM_INVALID_ARGUMENT);
  REQUIRE(shardcomm_zero_before(zero, 0, 0, caller) == SHARDCOMM_OK);
  REQUIRE(shardcomm_zero_parameter(zero, 0, 0, &view) == SHARDCOMM_OK);
  REQUIRE(view.count == kCount && view.dtype == SHARDCOMM_F32 && view.gradient == NULL);
  for (size_t i = 0; i < kCount; ++i) REQUIRE(((const float*)view.value)[i] == 10.0f + (float)i);
  REQUIRE(shardcomm_zero_after(zero, 0, 0, caller) == SHARDCOMM_OK);

  REQUIRE(shardcomm_zero_before(zero, 0, 1, caller) == SHARDCOMM_OK);
  REQUIRE(shardcomm_zero_parameter(zero, 0, 0, &view) == SHARDCOMM_OK);
  for (size_t i = 0; i < kCount; ++i) ((float*)view.gradient)[i] += (float)(rank + 1); /* the sum over ranks is 3 */
  shardcomm_zero_zero_gradients(zero); /* refused, which the next hook says */
  REQUIRE(shardcomm_zero_after(zero, 0, 1, caller) == SHARDCOMM_FAILED_PRECONDITION);
  REQUIRE(strstr(shardcomm_last_error(), "zero_gradients: unit layer") != NULL);
  REQUIRE(shardcomm_zero_after(zero, 0, 1, caller) == SHARDCOMM_OK);
  REQUIRE(shardcomm_zero_finish_step(zero, caller) == SHARDCOMM_OK);
  double norm = 0;
  REQUIRE(shardcomm_zero_gradient_norm(zero, &norm) == SHARDCOMM_OK);
  REQUIRE(fabs(norm - sqrt(kCount * 9.0)) < 1e-9);

  shardcomm_memory_report memory;
  memset(&memory, 0, sizeof memory);
  REQUIRE(shardcomm_zero_memory_report(zero, &memory) == SHARDCOMM_INVALID_ARGUMENT); /* struct_size is not set */
  memory.struct_size = sizeof memory;
  REQUIRE(shardcomm_zero_memory_report(zero, &memory) == SHARDCOMM_OK);
  REQUIRE(memory.parameter_bytes > 0 && memory.peak_bytes >= memory.live_bytes);

  shardcomm_adam_params adam_params;
  shardcomm_adam_params_init(&adam_params);
  adam_params.weight_decay = 0;
  shardcomm_adam* adam = NULL;
  REQUIRE(shardcomm_adam_create(zero, &adam_params, &adam) == SHARDCOMM_OK);
  REQUIRE(shardcomm_adam_step(adam, 0.5f, 1) == SHARDCOMM_OK);
  REQUIRE(shardcomm_adam_steps(adam) == 1);
  REQUIRE(shardcomm_zero_before(zero, 0, 0, caller) == SHARDCOMM_OK);
  REQUIRE(shardcomm_zero_parameter(zero, 0, 0, &view) == SHARDCOMM_OK);
  for (size_t i = 0; i < kCount; ++i) { /* the first step of Adam is the learning rate against the gradient's sign */
    REQUIRE(fabs(((const float*)view.value)[i] - (9.5 + (double)i)) < 1e-4);
  }
  REQUIRE(shardcomm_zero_after(zero, 0, 0, caller) == SHARDCOMM_OK);
  REQUIRE(shardcomm_zero_finish_step(zero, caller) == SHARDCOMM_OK);

  shardcomm_adam_destroy(adam);
  shardcomm_zero_destroy(zero);
  update_by_hand(comm);
  shardcomm_comm_destroy(comm);
  shardcomm_store_close(store);
  return NULL;
}

int main(void) {
  pthread_t threads[kRanks];
  int32_t ranks[kRanks];
  for (int32_t r = 0; r < kRanks; ++r) {
    ranks[r] = r;
    REQUIRE(pthread_create(&threads[r], NULL, run_rank, &ranks[r]) == 0);
  }
  for (int r = 0; r < kRanks; ++r) REQUIRE(pthread_join(threads[r], NULL) == 0);
  puts("ok");
  return 0;
}
