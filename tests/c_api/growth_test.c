/* Structs that grow: callers whose structs are smaller or larger than the library's, as those of older and newer c.h
   are. Ranks are threads. */
#include <math.h>
#include <stddef.h>

#include "tests/c_api/harness.h"

enum { kRanks = 2, kCount = 6, kGuard = 0xA5 };
/* The sizes of version 1.0. */
enum { kFirstZeroParams = 48, kFirstAdamParams = 24 };

static const shardcomm_stream kHere = {0, 0, NULL};

/* What a later c.h might have: one more member behind those of today. */
typedef struct {
  shardcomm_tensor tensor;
  size_t later;
} later_tensor;
typedef struct {
  shardcomm_unit unit;
  size_t later;
} later_unit;
typedef struct {
  shardcomm_zero_params params;
  size_t later;
} later_zero_params;
typedef struct {
  shardcomm_memory_report report;
  size_t later;
} later_report;
typedef struct {
  shardcomm_comm_params params;
  size_t later;
} later_comm_params;

static int is_filled_with(const void* memory, size_t from, size_t to, int byte) {
  const unsigned char* bytes = memory;
  for (size_t i = from; i < to; ++i) {
    if (bytes[i] != byte) return 0;
  }
  return 1;
}

/* Each _init_sized writes the caller's bytes and no more, and tells their number. */
#define CHECK_INIT(rank, type, init)                                                      \
  do {                                                                                    \
    union {                                                                               \
      type value;                                                                         \
      unsigned char bytes[sizeof(type) + 64];                                             \
    } room;                                                                               \
    for (size_t size = sizeof(size_t); size <= sizeof(type) + 32; size += 8) {            \
      memset(&room, kGuard, sizeof room);                                                 \
      init(&room.value, size);                                                            \
      CHECK(rank, room.value.struct_size == size);                                        \
      CHECK(rank, is_filled_with(&room, size, sizeof room, kGuard));                      \
      if (size > sizeof(type)) CHECK(rank, is_filled_with(&room, sizeof(type), size, 0)); \
    }                                                                                     \
    memset(&room, kGuard, sizeof room);                                                   \
    init(&room.value, sizeof(size_t) - 1);                                                \
    CHECK(rank, is_filled_with(&room, 0, sizeof room, kGuard));                           \
    init(NULL, sizeof(type));                                                             \
  } while (0)

static void test_sized_inits(test_rank* rank) {
  CHECK_INIT(rank, shardcomm_comm_params, shardcomm_comm_params_init_sized);
  CHECK_INIT(rank, shardcomm_tensor, shardcomm_tensor_init_sized);
  CHECK_INIT(rank, shardcomm_unit, shardcomm_unit_init_sized);
  CHECK_INIT(rank, shardcomm_zero_params, shardcomm_zero_params_init_sized);
  CHECK_INIT(rank, shardcomm_adam_params, shardcomm_adam_params_init_sized);
}

/* The functions behind the macros, as programs of version 1.0 call them. */
static void test_first_inits(test_rank* rank) {
  union {
    shardcomm_zero_params zero;
    shardcomm_adam_params adam;
    unsigned char bytes[256];
  } room;
  memset(&room, kGuard, sizeof room);
  (shardcomm_zero_params_init)(&room.zero);
  CHECK(rank, room.zero.struct_size == kFirstZeroParams && room.zero.stage == 3 && room.zero.prefetch_units == 1);
  CHECK(rank, is_filled_with(&room, kFirstZeroParams, sizeof room, kGuard));
  memset(&room, kGuard, sizeof room);
  (shardcomm_adam_params_init)(&room.adam);
  CHECK(rank, room.adam.struct_size == kFirstAdamParams && room.adam.beta1 == 0.9f);
  CHECK(rank, is_filled_with(&room, kFirstAdamParams, sizeof room, kGuard));
}

static void test_defaults(test_rank* rank) {
  shardcomm_comm_params comm;
  shardcomm_tensor tensor;
  shardcomm_unit unit;
  shardcomm_zero_params zero;
  shardcomm_comm_params_init(&comm);
  shardcomm_tensor_init(&tensor);
  shardcomm_unit_init(&unit);
  shardcomm_zero_params_init(&zero);
  CHECK(rank, comm.struct_size == sizeof comm && comm.world_size == 1 && comm.rank == 0 && comm.options == NULL);
  CHECK(rank, tensor.struct_size == sizeof tensor && tensor.trainable == 1 && tensor.decay_factor == 1.0f);
  CHECK(rank, tensor.dtype == SHARDCOMM_F32 && tensor.name == NULL && tensor.dimensions == 0);
  CHECK(rank, unit.struct_size == sizeof unit && unit.parameters == NULL && unit.parameter_count == 0);
  CHECK(rank, zero.struct_size == sizeof zero && zero.stage == 3 && zero.poison_freed == 0 && zero.reserved == 0);
}

static void fill(void* user, uint32_t unit, uint32_t parameter, size_t offset, float* values, size_t count) {
  (void)user;
  for (size_t i = 0; i < count; ++i) values[i] = (float)(100 * unit + 10 * parameter + offset + i);
}

/* Two units of two tensors each, as `later` structs with zeros behind what the library knows. */
static void test_later_arrays(test_rank* rank, shardcomm_comm* comm) {
  const size_t shape[1] = {kCount};
  later_tensor tensors[2];
  later_unit units[2];
  static const char* const kNames[2] = {"weight", "bias"};
  static const char* const kUnits[2] = {"first", "second"};
  shardcomm_zero* zero = NULL;
  for (int i = 0; i < 2; ++i) {
    shardcomm_tensor_init_sized(&tensors[i].tensor, sizeof tensors[i]);
    tensors[i].tensor.name = kNames[i];
    tensors[i].tensor.shape = shape;
    tensors[i].tensor.dimensions = 1;
    shardcomm_unit_init_sized(&units[i].unit, sizeof units[i]);
    units[i].unit.name = kUnits[i];
    units[i].unit.parameters = &tensors[0].tensor;
    units[i].unit.parameter_count = 2;
  }
  CHECK_OK(rank, shardcomm_zero_create(comm, &units[0].unit, 2, NULL, &zero));
  if (zero == NULL) return;
  CHECK_OK(rank, shardcomm_zero_fill(zero, fill, NULL));
  for (uint32_t u = 0; u < 2; ++u) {
    CHECK_OK(rank, shardcomm_zero_before(zero, u, 0, kHere));
    for (uint32_t p = 0; p < 2; ++p) {
      shardcomm_view view = {0};
      CHECK_OK(rank, shardcomm_zero_parameter(zero, u, p, &view));
      CHECK(rank, view.count == kCount && ((float*)view.value)[kCount - 1] == (float)(100 * u + 10 * p + kCount - 1));
    }
    CHECK_OK(rank, shardcomm_zero_after(zero, u, 0, kHere));
  }
  CHECK_OK(rank, shardcomm_zero_finish_step(zero, kHere));

  later_report report;
  memset(&report, kGuard, sizeof report);
  report.report.struct_size = sizeof report;
  CHECK_OK(rank, shardcomm_zero_memory_report(zero, &report.report));
  CHECK(rank, report.report.struct_size == sizeof report && report.report.peak_bytes > 0 && report.later == 0);
  shardcomm_zero_destroy(zero);
}

static void test_refused(test_rank* rank, shardcomm_comm* comm) {
  const size_t shape[1] = {kCount};
  later_zero_params params;
  later_tensor tensors[2];
  shardcomm_unit unit;
  shardcomm_zero* zero = NULL;
  shardcomm_zero_params_init_sized(&params.params, sizeof params);
  for (int i = 0; i < 2; ++i) {
    shardcomm_tensor_init_sized(&tensors[i].tensor, sizeof tensors[i]);
    tensors[i].tensor.name = i == 0 ? "weight" : "bias";
    tensors[i].tensor.shape = shape;
    tensors[i].tensor.dimensions = 1;
  }
  shardcomm_unit_init(&unit);
  unit.name = "layer";
  unit.parameters = &tensors[0].tensor;
  unit.parameter_count = 2;

  params.later = 1; /* a member that this library does not have */
  CHECK_CODE(rank, shardcomm_zero_create(comm, &unit, 1, &params.params, &zero), SHARDCOMM_UNSUPPORTED);
  CHECK_ERROR_SAYS(rank, "a member is set that only a later library has");
  params.later = 0;
  tensors[1].later = (size_t)1 << 56; /* the last byte */
  CHECK_CODE(rank, shardcomm_zero_create(comm, &unit, 1, &params.params, &zero), SHARDCOMM_UNSUPPORTED);
  CHECK_ERROR_SAYS(rank, "tensor 1");
  tensors[1].later = 0;
  params.params.reserved = 1;
  CHECK_CODE(rank, shardcomm_zero_create(comm, &unit, 1, &params.params, &zero), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "params.reserved must be 0");
  params.params.reserved = 0;

  /* Sizes that no version has: nothing set, less than the first, odd, and what was never initialized. */
  const size_t sizes[] = {0, kFirstZeroParams - 8, kFirstZeroParams + 4, (size_t)1 << 40};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    params.params.struct_size = sizes[i];
    CHECK_CODE(rank, shardcomm_zero_create(comm, &unit, 1, &params.params, &zero), SHARDCOMM_INVALID_ARGUMENT);
    CHECK_ERROR_SAYS(rank, "initialize it with shardcomm_zero_params_init");
  }
  memset(&tensors[1].tensor, 0, sizeof tensors[1].tensor);
  CHECK_CODE(rank, shardcomm_zero_create(comm, &unit, 1, NULL, &zero), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "initialize it with shardcomm_tensor_init");
  memset(&unit, 0, sizeof unit);
  CHECK_CODE(rank, shardcomm_zero_create(comm, &unit, 1, NULL, &zero), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "initialize it with shardcomm_unit_init");
  CHECK(rank, zero == NULL);
}

/* Whether freed parameters read as NaN, with these params. */
static int poisons(test_rank* rank, shardcomm_comm* comm, const shardcomm_zero_params* params) {
  const size_t shape[1] = {kCount};
  shardcomm_tensor tensor;
  shardcomm_unit unit;
  shardcomm_zero* zero = NULL;
  shardcomm_view view = {0};
  shardcomm_tensor_init(&tensor);
  tensor.name = "weight";
  tensor.shape = shape;
  tensor.dimensions = 1;
  shardcomm_unit_init(&unit);
  unit.name = "layer";
  unit.parameters = &tensor;
  unit.parameter_count = 1;
  CHECK_OK(rank, shardcomm_zero_create(comm, &unit, 1, params, &zero));
  if (zero == NULL) return -1;
  CHECK_OK(rank, shardcomm_zero_fill(zero, fill, NULL));
  CHECK_OK(rank, shardcomm_zero_before(zero, 0, 0, kHere));
  CHECK_OK(rank, shardcomm_zero_parameter(zero, 0, 0, &view));
  CHECK_OK(rank, shardcomm_zero_after(zero, 0, 0, kHere));
  CHECK_OK(rank, shardcomm_zero_finish_step(zero, kHere));
  const int is_poisoned = isnan(*(const volatile float*)view.value) ? 1 : 0; /* too late, on purpose */
  shardcomm_zero_destroy(zero);
  return is_poisoned;
}

/* A member of version 1.1 is taken from callers who have it; what lies behind, or in the padding of, a struct of
   version 1.0 is not. */
static void test_new_member(test_rank* rank, shardcomm_comm* comm) {
  shardcomm_zero_params params;
  memset(&params, kGuard, sizeof params);
  (shardcomm_zero_params_init)(&params);
  params.padding = -1;
  CHECK(rank, params.poison_freed != 0); /* still the guard */
  CHECK(rank, poisons(rank, comm, &params) == 0);
  /* The same in no more memory than an older caller has, which AddressSanitizer watches. */
  shardcomm_zero_params* first = malloc(kFirstZeroParams);
  (shardcomm_zero_params_init)(first);
  CHECK(rank, poisons(rank, comm, first) == 0);
  free(first);
  shardcomm_zero_params_init(&params);
  params.padding = -1;
  CHECK(rank, poisons(rank, comm, &params) == 0);
  params.poison_freed = 1;
  CHECK(rank, poisons(rank, comm, &params) == 1);
}

static void be_rank(test_rank* rank) {
  shardcomm_store* store = NULL;
  shardcomm_comm* comm = NULL;
  later_comm_params place;
  test_sized_inits(rank);
  test_first_inits(rank);
  test_defaults(rank);
  CHECK_OK(rank, shardcomm_store_open(rank->uri, &store));
  shardcomm_comm_params_init_sized(&place.params, sizeof place);
  place.params.rank = rank->rank;
  place.params.world_size = rank->size;
  place.params.options = "timeout_ms=20000";
  place.later = 7;
  CHECK_CODE(rank, shardcomm_comm_create(store, &place.params, &comm), SHARDCOMM_UNSUPPORTED);
  place.later = 0;
  CHECK_OK(rank, shardcomm_comm_create(store, &place.params, &comm));
  shardcomm_store_close(store);
  if (comm == NULL) return;
  test_later_arrays(rank, comm);
  test_refused(rank, comm);
  test_new_member(rank, comm);
  shardcomm_comm_destroy(comm);
}

int main(void) {
  const int failures = run_threads(kRanks, "local://c-api-growth", be_rank);
  if (failures != 0) fprintf(stderr, "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
