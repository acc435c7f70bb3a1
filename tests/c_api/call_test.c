/* shardcomm_enqueue: every collective by its struct gives what its own function gives; labels reach errors; items grow.
   Ranks are threads and processes. */
#include "tests/c_api/harness.h"

enum { kCount = 500 };

static const shardcomm_stream kHere = {0, 0, NULL};

/* Two outputs, one of a function and one of a call, and their common input. */
typedef struct {
  size_t n, me;
  float in[kMostRanks * kCount], expected[kMostRanks * kCount], out[kMostRanks * kCount];
} buffers;

static void fill(buffers* b, test_rank* rank) {
  b->n = (size_t)rank->size;
  b->me = (size_t)rank->rank;
  for (size_t i = 0; i < kMostRanks * kCount; ++i) b->in[i] = (float)((i * 7 + b->me * 31) % 101);
  memset(b->expected, 0, sizeof b->expected);
  memset(b->out, 0, sizeof b->out);
}

static shardcomm_call make_call(buffers* b, int32_t collective) {
  shardcomm_call call;
  shardcomm_call_init(&call);
  call.collective = collective;
  call.in = b->in;
  call.out = b->out;
  call.count = kCount;
  call.label = "a label";
  return call;
}

/* Runs `function` into `expected` and the call, made of `members`, into `out`, and compares all of both. */
#define CHECK_CALL(name, function, members)                       \
  do {                                                            \
    fill(b, rank);                                                \
    CHECK_OK(rank, function);                                     \
    shardcomm_call call = make_call(b, name);                     \
    members;                                                      \
    CHECK_OK(rank, shardcomm_enqueue(comm, &call, kHere, NULL));  \
    CHECK(rank, memcmp(b->expected, b->out, sizeof b->out) == 0); \
  } while (0)

static void test_single(test_rank* rank, shardcomm_comm* comm, buffers* b) {
  const int32_t f32 = SHARDCOMM_F32, max = SHARDCOMM_MAX, root = rank->size - 1;
  CHECK_CALL(SHARDCOMM_ALL_GATHER, shardcomm_all_gather(comm, b->in, b->expected, kCount, f32, kHere, NULL), (void)0);
  CHECK_CALL(SHARDCOMM_REDUCE_SCATTER,
             shardcomm_reduce_scatter(comm, b->in, b->expected, kCount, f32, max, kHere, NULL), call.op = max);
  CHECK_CALL(SHARDCOMM_ALL_REDUCE, shardcomm_all_reduce(comm, b->in, b->expected, kCount, f32, max, kHere, NULL),
             call.op = max);
  CHECK_CALL(SHARDCOMM_ALL_TO_ALL, shardcomm_all_to_all(comm, b->in, b->expected, kCount, f32, kHere, NULL), (void)0);
  CHECK_CALL(SHARDCOMM_GATHER, shardcomm_gather(comm, b->in, b->expected, kCount, f32, root, kHere, NULL),
             call.root = root);
  CHECK_CALL(SHARDCOMM_SCATTER, shardcomm_scatter(comm, b->in, b->expected, kCount, f32, root, kHere, NULL),
             call.root = root);
  CHECK_CALL(SHARDCOMM_REDUCE, shardcomm_reduce(comm, b->in, b->expected, kCount, f32, max, root, kHere, NULL),
             call.op = max;
             call.root = root);
  /* The data of a broadcast is its output. */
  fill(b, rank);
  memcpy(b->expected, b->in, kCount * sizeof(float));
  memcpy(b->out, b->in, kCount * sizeof(float));
  CHECK_OK(rank, shardcomm_broadcast(comm, b->expected, kCount, f32, root, kHere, NULL));
  shardcomm_call call = make_call(b, SHARDCOMM_BROADCAST);
  call.root = root;
  CHECK_CODE(rank, shardcomm_enqueue(comm, &call, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "'in' must be NULL");
  call.in = NULL;
  CHECK_OK(rank, shardcomm_enqueue(comm, &call, kHere, NULL));
  CHECK(rank, memcmp(b->expected, b->out, sizeof b->out) == 0);
}

static void test_counted(test_rank* rank, shardcomm_comm* comm, buffers* b) {
  const int32_t f32 = SHARDCOMM_F32, min = SHARDCOMM_MIN;
  size_t counts[kMostRanks], in_counts[kMostRanks], out_counts[kMostRanks];
  for (size_t r = 0; r < (size_t)rank->size; ++r) {
    counts[r] = 3 * r;
    in_counts[r] = 2 * (size_t)rank->rank + r;
    out_counts[r] = 2 * r + (size_t)rank->rank;
  }
  CHECK_CALL(SHARDCOMM_ALL_GATHER_V, shardcomm_all_gather_v(comm, b->in, b->expected, counts, f32, kHere, NULL),
             call.counts = counts);
  CHECK_CALL(SHARDCOMM_REDUCE_SCATTER_V,
             shardcomm_reduce_scatter_v(comm, b->in, b->expected, counts, f32, min, kHere, NULL), call.counts = counts;
             call.op = min);
  CHECK_CALL(SHARDCOMM_ALL_TO_ALL_V,
             shardcomm_all_to_all_v(comm, b->in, in_counts, b->expected, out_counts, f32, kHere, NULL),
             call.counts = in_counts;
             call.out_counts = out_counts);
  const int32_t counted[] = {SHARDCOMM_ALL_GATHER_V, SHARDCOMM_REDUCE_SCATTER_V, SHARDCOMM_ALL_TO_ALL_V};
  for (size_t i = 0; i < 3; ++i) {
    shardcomm_call call = make_call(b, counted[i]);
    CHECK_CODE(rank, shardcomm_enqueue(comm, &call, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
    CHECK_ERROR_SAYS(rank, "call.counts is NULL");
  }
}

/* Items as a later c.h might have them. */
typedef struct {
  shardcomm_item item;
  size_t later;
} later_item;

static void test_many(test_rank* rank, shardcomm_comm* comm, buffers* b) {
  const int32_t f32 = SHARDCOMM_F32, i32 = SHARDCOMM_I32, root = rank->size - 1;
  const size_t half = kMostRanks * kCount / 2;
  float* const in2 = b->in + half;
  float* const out2 = b->out + half;
  float* const expected2 = b->expected + half;
  /* Two tensors; the second one's floats are taken for integers, which a maximum of those does not mind. */
  const shardcomm_item items[2] = {{b->in, b->out, 100, f32, SHARDCOMM_SUM, 0}, {in2, out2, 7, i32, SHARDCOMM_MAX, 1}};
  const shardcomm_gather_item gathers[2] = {{b->in, b->expected, 100, f32}, {in2, expected2, 7, i32}};
  const shardcomm_reduce_item reduces[2] = {{b->in, b->expected, 100, f32, SHARDCOMM_SUM},
                                            {in2, expected2, 7, i32, SHARDCOMM_MAX}};
  const shardcomm_all_reduce_item all_reduces[2] = {{b->in, b->expected, 100, f32, SHARDCOMM_SUM},
                                                    {in2, expected2, 7, i32, SHARDCOMM_MAX}};
  CHECK_CALL(SHARDCOMM_ALL_GATHER_MANY, shardcomm_all_gather_many(comm, gathers, 2, kHere, NULL), call.items = items;
             call.item_count = 2);
  CHECK_CALL(SHARDCOMM_REDUCE_SCATTER_MANY, shardcomm_reduce_scatter_many(comm, reduces, 2, kHere, NULL),
             call.items = items;
             call.item_count = 2);
  CHECK_CALL(SHARDCOMM_ALL_REDUCE_MANY, shardcomm_all_reduce_many(comm, all_reduces, 2, kHere, NULL),
             call.items = items;
             call.item_count = 2);
  CHECK_CALL(SHARDCOMM_ALL_REDUCE_MANY, shardcomm_all_reduce_many(comm, NULL, 0, kHere, NULL), (void)0);

  /* The same, of items that are larger than the library's. */
  later_item later[2] = {{items[0], 0}, {items[1], 0}};
  CHECK_CALL(SHARDCOMM_ALL_REDUCE_MANY, shardcomm_all_reduce_many(comm, all_reduces, 2, kHere, NULL),
             call.items = &later[0].item;
             call.item_count = 2; call.item_bytes = sizeof later[0]);
  shardcomm_call call = make_call(b, SHARDCOMM_ALL_REDUCE_MANY);
  call.items = &later[0].item;
  call.item_count = 2;
  call.item_bytes = sizeof later[0];
  later[1].later = 1;
  CHECK_CODE(rank, shardcomm_enqueue(comm, &call, kHere, NULL), SHARDCOMM_UNSUPPORTED);
  later[1].later = 0;
  later[1].item.scale = 2;
  call.collective = SHARDCOMM_ALL_GATHER_MANY;
  CHECK_CODE(rank, shardcomm_enqueue(comm, &call, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "item 1 has a scale, which is for reductions");
  call.collective = SHARDCOMM_ALL_REDUCE_MANY;
  call.item_bytes = 0;
  CHECK_CODE(rank, shardcomm_enqueue(comm, &call, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "call.item_bytes is 0");
  call.items = NULL;
  CHECK_CODE(rank, shardcomm_enqueue(comm, &call, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "call.items is NULL");

  fill(b, rank);
  memcpy(b->expected, b->in, sizeof b->in);
  memcpy(b->out, b->in, sizeof b->in);
  const shardcomm_broadcast_item broadcasts[2] = {{b->expected, 100, f32}, {expected2, 7, i32}};
  shardcomm_item data[2] = {{NULL, b->out, 100, f32, 0, 0}, {b->in, out2, 7, i32, 0, 0}};
  CHECK_OK(rank, shardcomm_broadcast_many(comm, broadcasts, 2, root, kHere, NULL));
  call = make_call(b, SHARDCOMM_BROADCAST_MANY);
  call.items = data;
  call.item_count = 2;
  call.root = root;
  CHECK_CODE(rank, shardcomm_enqueue(comm, &call, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  data[1].in = NULL;
  CHECK_OK(rank, shardcomm_enqueue(comm, &call, kHere, NULL));
  CHECK(rank, memcmp(b->expected, b->out, sizeof b->out) == 0);
}

static void test_streams_and_mosaics(test_rank* rank, shardcomm_comm* comm, buffers* b) {
  shardcomm_stream stream;
  shardcomm_work* work = NULL;
  shardcomm_mosaic* mosaic = NULL;
  CHECK_OK(rank, shardcomm_host_stream_create("calls", &stream));
  fill(b, rank);
  shardcomm_call call = make_call(b, SHARDCOMM_ALL_REDUCE);
  CHECK_OK(rank, shardcomm_enqueue(comm, &call, stream, &work));
  CHECK_OK(rank, shardcomm_work_synchronize(work, 20000));
  shardcomm_work_release(work);
  CHECK_OK(rank, shardcomm_all_reduce(comm, b->in, b->expected, kCount, SHARDCOMM_F32, SHARDCOMM_SUM, kHere, NULL));
  CHECK(rank, memcmp(b->expected, b->out, sizeof b->out) == 0);
  call = make_call(b, SHARDCOMM_BARRIER);
  CHECK_OK(rank, shardcomm_enqueue(comm, &call, stream, NULL));
  shardcomm_host_stream_destroy(stream);

  const size_t bytes = shardcomm_mosaic_granularity_bytes();
  CHECK_OK(rank, shardcomm_mosaic_allocate(comm, bytes, "calls", &mosaic));
  memset(shardcomm_mosaic_shard(mosaic), rank->rank + 1, bytes);
  call = make_call(b, SHARDCOMM_ALL_REDUCE);
  call.mosaic = mosaic;
  CHECK_CODE(rank, shardcomm_enqueue(comm, &call, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  call.collective = SHARDCOMM_ALL_GATHER;
  CHECK_CODE(rank, shardcomm_enqueue(comm, &call, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "the mosaic's label");
  call.label = NULL;
  CHECK_OK(rank, shardcomm_enqueue(comm, &call, kHere, NULL));
  const unsigned char* all = shardcomm_mosaic_all(mosaic);
  for (size_t r = 0; r < (size_t)rank->size; ++r) CHECK(rank, all[(r + 1) * bytes - 1] == r + 1);
  CHECK_OK(rank, shardcomm_barrier(comm, kHere, NULL));
  shardcomm_mosaic_destroy(mosaic);
}

static void test_refused(test_rank* rank, shardcomm_comm* comm, buffers* b) {
  shardcomm_call call = make_call(b, SHARDCOMM_BARRIER);
  CHECK_CODE(rank, shardcomm_enqueue(NULL, &call, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_enqueue(comm, NULL, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  call.collective = 200;
  CHECK_CODE(rank, shardcomm_enqueue(comm, &call, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "call.collective 200 does not exist");
  call.collective = -1;
  CHECK_CODE(rank, shardcomm_enqueue(comm, &call, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  call.collective = SHARDCOMM_BARRIER;
  call.timeout_ms = -1;
  CHECK_CODE(rank, shardcomm_enqueue(comm, &call, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  call.timeout_ms = 0;
  call.scale = 0.5;
  CHECK_CODE(rank, shardcomm_enqueue(comm, &call, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "call.scale is for reductions of one tensor, not for barrier");
  memset(&call, 0, sizeof call);
  CHECK_CODE(rank, shardcomm_enqueue(comm, &call, kHere, NULL), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_ERROR_SAYS(rank, "shardcomm_call_init");
  CHECK_OK(rank, shardcomm_comm_health(comm));
}

/* Labels are compared between ranks, for every collective; this ends the communicator. */
static void test_labels(test_rank* rank, shardcomm_comm* comm, buffers* b) {
  if (rank->size == 1) return;
  fill(b, rank);
  shardcomm_call call = make_call(b, SHARDCOMM_REDUCE);
  call.label = rank->rank == 0 ? "block 7" : "block 8";
  CHECK_CODE(rank, shardcomm_enqueue(comm, &call, kHere, NULL), SHARDCOMM_FAILED_PRECONDITION);
  CHECK_ERROR_SAYS(rank, "block 7");
  CHECK_ERROR_SAYS(rank, "block 8");
}

static void test_scale_and_timeout(test_rank* rank, shardcomm_comm* comm) {
  shardcomm_call call;
  float in = 3, out = 0;
  shardcomm_item item = {0};
  shardcomm_call_init(&call);
  call.collective = SHARDCOMM_ALL_REDUCE;
  call.in = &in;
  call.out = &out;
  call.count = 1;
  call.dtype = SHARDCOMM_F32;
  call.scale = 0.5;
  call.timeout_ms = 5000;
  call.label = "scaled";
  CHECK_OK(rank, shardcomm_enqueue(comm, &call, kHere, NULL));
  CHECK(rank, out == 1.5f * (float)rank->size);
  call.dtype = SHARDCOMM_I32;
  CHECK_CODE(rank, shardcomm_enqueue(comm, &call, kHere, NULL), SHARDCOMM_UNSUPPORTED);
  shardcomm_call_init(&call);
  item.in = &in;
  item.out = &out;
  item.count = 1;
  item.dtype = SHARDCOMM_F32;
  item.scale = -1;
  call.collective = SHARDCOMM_ALL_REDUCE_MANY;
  call.items = &item;
  call.item_count = 1;
  CHECK_OK(rank, shardcomm_enqueue(comm, &call, kHere, NULL));
  CHECK(rank, out == -3.0f * (float)rank->size);
  CHECK_OK(rank, shardcomm_comm_set_timeout(comm, 7000));
  CHECK_CODE(rank, shardcomm_comm_set_timeout(comm, -1), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_OK(rank, shardcomm_comm_set_timeout(comm, 0));
}

typedef struct {
  int calls;
  shardcomm_code code;
  size_t message_length;
} heard;

static void hear(void* user, shardcomm_code code, const char* message) {
  heard* const of = user;
  of->code = code;
  of->message_length = strlen(message);
  ++of->calls;
}

static void test_callback(test_rank* rank, shardcomm_comm* comm) {
  shardcomm_work* work = NULL;
  shardcomm_stream stream;
  heard of = {0, 99, 99};
  CHECK_OK(rank, shardcomm_host_stream_create("callback", &stream));
  CHECK_OK(rank, shardcomm_barrier(comm, stream, &work));
  CHECK_OK(rank, shardcomm_work_on_done(work, hear, &of));
  CHECK_OK(rank, shardcomm_stream_synchronize(stream, 10000));
  CHECK(rank, of.calls == 1 && of.code == SHARDCOMM_OK && of.message_length == 0);
  CHECK_OK(rank, shardcomm_work_on_done(work, hear, &of)); /* at once */
  CHECK(rank, of.calls == 2);
  CHECK_CODE(rank, shardcomm_work_on_done(work, NULL, &of), SHARDCOMM_INVALID_ARGUMENT);
  CHECK_CODE(rank, shardcomm_work_on_done(NULL, hear, &of), SHARDCOMM_INVALID_ARGUMENT);
  shardcomm_work_release(work);
  shardcomm_host_stream_destroy(stream);
}

static void be_rank(test_rank* rank) {
  shardcomm_store* store = NULL;
  CHECK_OK(rank, shardcomm_store_open(rank->uri, &store));
  shardcomm_comm* comm = make_comm(rank, store, "timeout_ms=20000");
  shardcomm_store_close(store);
  if (comm == NULL) return;
  test_scale_and_timeout(rank, comm);
  test_callback(rank, comm);
  buffers* b = calloc(1, sizeof *b);
  test_single(rank, comm, b);
  test_counted(rank, comm, b);
  test_many(rank, comm, b);
  test_streams_and_mosaics(rank, comm, b);
  test_refused(rank, comm, b);
  test_labels(rank, comm, b);
  free(b);
  shardcomm_comm_destroy(comm);
}

int main(void) {
  int failures = 0;
  for (int size = 1; size <= 4; ++size) {
    char uri[64];
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d", free_port());
    failures += run_processes(size, uri, be_rank);
    snprintf(uri, sizeof uri, "local://c-api-call-%d", size);
    failures += run_threads(size, uri, be_rank);
  }
  if (failures != 0) fprintf(stderr, "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
