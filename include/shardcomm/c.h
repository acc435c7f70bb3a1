/* The stable ABI. Opaque handles; integer codes; outputs last, written only on success; every struct that may grow
   begins with its own size. On failure the text is in shardcomm_last_error(), which belongs to the calling thread until
   its next failing call. Counts are elements. NULL is allowed in every destroy, close and release. What each call
   means, requires and promises is said at its C++ twin: communicator.h, window.h, pool.h, stream.h, zero.h,
   optimizer.h, checkpoint.h.

   What may change, and when. Within one SHARDCOMM_ABI_MAJOR a program runs with every library whose minor version is
   that of its c.h or higher: no symbol, struct, member or value is taken away or given another meaning, and structs
   without struct_size never change. A higher SHARDCOMM_ABI_MINOR may bring functions, values of enumerations, and
   members at the end of structs that begin with struct_size. Of such a struct the library reads and writes as much as
   the caller has:
     - A smaller struct_size than the library's is an older caller; members that it lacks have their defaults. Arrays
       are stepped by the struct_size of their elements.
     - A larger one is a newer caller. It is accepted as long as all bytes that the library does not know are zero, and
       is SHARDCOMM_UNSUPPORTED otherwise. Of an output such bytes are set to zero.
     - One that no version has had, such as 0, is SHARDCOMM_INVALID_ARGUMENT.
   Initialize such structs with their _init, then set members: a macro, so that the size is that of the c.h that the
   program is compiled with. The functions behind it end in _init_sized (struct, sizeof struct) and write no further
   than that; the functions shardcomm_zero_params_init and shardcomm_adam_params_init, for programs that were compiled
   when they were no macros, write the structs of version 1.0. Members named `reserved` must be 0. */
#ifndef SHARDCOMM_C_H_
#define SHARDCOMM_C_H_
#include <stddef.h>
#include <stdint.h>

#include "shardcomm/export.h"
#ifdef __cplusplus
extern "C" {
#endif

#define SHARDCOMM_ABI_MAJOR 1
#define SHARDCOMM_ABI_MINOR 1

typedef int32_t shardcomm_code; /* 0 is success; values are shardcomm::Code */
enum {
  SHARDCOMM_OK = 0,
  SHARDCOMM_INVALID_ARGUMENT = 1,
  SHARDCOMM_FAILED_PRECONDITION = 2,
  SHARDCOMM_UNSUPPORTED = 3,
  SHARDCOMM_UNAVAILABLE = 4,
  SHARDCOMM_TIMED_OUT = 5,
  SHARDCOMM_PEER_LOST = 6,
  SHARDCOMM_ABORTED = 7,
  SHARDCOMM_OUT_OF_MEMORY = 8,
  SHARDCOMM_DEVICE = 9,
  SHARDCOMM_SYSTEM = 10,
  SHARDCOMM_INTERNAL = 11,
  SHARDCOMM_DATA_LOSS = 12
};

/* Whose number a native code is; values are shardcomm::Origin. */
enum {
  SHARDCOMM_ORIGIN_NONE = 0,
  SHARDCOMM_ORIGIN_ERRNO = 1,
  SHARDCOMM_ORIGIN_CUDA = 2,
  SHARDCOMM_ORIGIN_VERBS = 3, /* errno values */
  SHARDCOMM_ORIGIN_UCX = 4,
  SHARDCOMM_ORIGIN_NCCL = 5
};

/* Element types, of every `dtype` below. */
enum {
  SHARDCOMM_U8 = 0,
  SHARDCOMM_I32 = 1,
  SHARDCOMM_F16 = 2,
  SHARDCOMM_BF16 = 3,
  SHARDCOMM_F32 = 4,
  SHARDCOMM_F64 = 5,
  SHARDCOMM_I64 = 6,
  SHARDCOMM_I8 = 7,
  SHARDCOMM_U32 = 8,
  SHARDCOMM_U64 = 9,
  SHARDCOMM_F8E4M3 = 10,
  SHARDCOMM_F8E5M2 = 11,
  SHARDCOMM_I16 = 12,
  SHARDCOMM_U16 = 13,
  SHARDCOMM_BOOL = 14,      /* a byte, 0 or 1 */
  SHARDCOMM_COMPLEX64 = 15, /* two f32 */
  SHARDCOMM_COMPLEX128 = 16 /* two f64 */
};

/* Reductions, of every `op` below. */
enum {
  SHARDCOMM_SUM = 0,
  SHARDCOMM_AVERAGE = 1,
  SHARDCOMM_MAX = 2,
  SHARDCOMM_MIN = 3,
  SHARDCOMM_PRODUCT = 4,
  SHARDCOMM_BAND = 5,
  SHARDCOMM_BOR = 6,
  SHARDCOMM_BXOR = 7
};

typedef struct shardcomm_store shardcomm_store;
typedef struct shardcomm_comm shardcomm_comm;
typedef struct shardcomm_window shardcomm_window;
typedef struct shardcomm_mosaic shardcomm_mosaic;
typedef struct shardcomm_pool shardcomm_pool;
typedef struct shardcomm_work shardcomm_work;
typedef struct shardcomm_prepared shardcomm_prepared;
typedef struct shardcomm_zero shardcomm_zero;
typedef struct shardcomm_adam shardcomm_adam;

SHARDCOMM_EXPORT uint32_t shardcomm_abi_version(void); /* major << 16 | minor */
SHARDCOMM_EXPORT const char* shardcomm_version_string(void);
SHARDCOMM_EXPORT const char* shardcomm_code_name(shardcomm_code code); /* "peer_lost"; "unknown" for other numbers */
/* "peer_lost: while gathering unit h.0: rank 3 ended"; "" before the first failure */
SHARDCOMM_EXPORT const char* shardcomm_last_error(void);

typedef struct {
  size_t struct_size;
  int32_t code;        /* of this thread's last failing call; SHARDCOMM_OK before the first */
  int32_t origin;      /* SHARDCOMM_ORIGIN_...: where the error was first met, if that was on this rank */
  int32_t native_code; /* what `origin` calls it: ENOMEM, say */
  int32_t reserved;
  const char* message; /* the text of shardcomm_last_error without "peer_lost: " in front, valid as long as that is */
} shardcomm_error;
/* For bindings that make an exception of each code. Its own failure leaves the last error as it is. */
SHARDCOMM_EXPORT shardcomm_code shardcomm_last_error_details(shardcomm_error* out);

/* Every text that a call gives to its caller as a char** is freed by this. */
SHARDCOMM_EXPORT void shardcomm_string_free(char* text);

/* --- meeting --- */

/* "tcp://host:port" (rank 0 listens), "file:///path", "env://", "local://name" (ranks that are threads) */
SHARDCOMM_EXPORT shardcomm_code shardcomm_store_open(const char* uri, shardcomm_store** out);
SHARDCOMM_EXPORT void shardcomm_store_close(shardcomm_store* store);

/* A store of the caller's own, such as a framework's, which must hold values of any bytes under keys that are set once.
   The functions are called by the thread that is in shardcomm_comm_create, with `user` first. What they return is a
   shardcomm_code; a failure reaches all ranks that can still be told, with the key. */
typedef void (*shardcomm_store_sink)(void* sink, const void* bytes, size_t count);
typedef struct {
  size_t struct_size;
  void* user;
  /* Keeps [bytes, bytes + count) under key, for every rank's get. */
  shardcomm_code (*set)(void* user, const char* key, const void* bytes, size_t count);
  /* Waits until key is set, then hands its value to `give(sink, …)`, once, and returns SHARDCOMM_OK. It must give up
     after timeout_ms (0: only looks) with SHARDCOMM_TIMED_OUT: the library cannot interrupt it, so a get that waits for
     longer makes the meeting as late as itself. When it fails, what it gives is taken for the error's text. */
  shardcomm_code (*get)(void* user, const char* key, int64_t timeout_ms, shardcomm_store_sink give, void* sink);
  void (*close)(void* user); /* called by shardcomm_store_close, after which `user` is not used; may be NULL */
} shardcomm_store_callbacks;
SHARDCOMM_EXPORT void shardcomm_store_callbacks_init_sized(shardcomm_store_callbacks* callbacks, size_t struct_size);
#define shardcomm_store_callbacks_init(callbacks) shardcomm_store_callbacks_init_sized((callbacks), sizeof *(callbacks))
/* `close` is not called when this fails. */
SHARDCOMM_EXPORT shardcomm_code shardcomm_store_create(const shardcomm_store_callbacks* callbacks,
                                                       shardcomm_store** out);

/* The place in the job that a launcher (shardcomm run, torchrun, mpirun, srun) gave this process. */
typedef struct {
  size_t struct_size;
  int32_t rank, world_size;
  int32_t local_rank; /* among the ranks of this node */
  int32_t reserved;
} shardcomm_launched_rank;
/* SHARDCOMM_UNAVAILABLE without a launcher */
SHARDCOMM_EXPORT shardcomm_code shardcomm_launched_rank_from_env(shardcomm_launched_rank* out);

typedef struct {
  size_t struct_size;
  int32_t rank, world_size;
  int32_t device_kind; /* 0 host, 1 cuda */
  int32_t device_index;
  const char* options; /* "transports=shm,timeout_ms=5000" over the environment's; NULL: the environment's */
} shardcomm_comm_params;
/* rank 0 of 1, on the host, with the environment's options */
SHARDCOMM_EXPORT void shardcomm_comm_params_init_sized(shardcomm_comm_params* params, size_t struct_size);
#define shardcomm_comm_params_init(params) shardcomm_comm_params_init_sized((params), sizeof *(params))

/* collective; the store must outlive the communicator's creation only */
SHARDCOMM_EXPORT shardcomm_code shardcomm_comm_create(shardcomm_store* store, const shardcomm_comm_params* params,
                                                      shardcomm_comm** out);
/* collective; color < 0: *out is NULL */
SHARDCOMM_EXPORT shardcomm_code shardcomm_comm_split(shardcomm_comm* comm, int32_t color, int32_t key,
                                                     shardcomm_comm** out);
SHARDCOMM_EXPORT int32_t shardcomm_comm_rank(const shardcomm_comm* comm);
SHARDCOMM_EXPORT int32_t shardcomm_comm_size(const shardcomm_comm* comm);
/* of later operations that bring no timeout of their own; 0: that of the options; any thread; this rank's alone */
SHARDCOMM_EXPORT shardcomm_code shardcomm_comm_set_timeout(shardcomm_comm* comm, int64_t timeout_ms);
SHARDCOMM_EXPORT shardcomm_code shardcomm_comm_health(const shardcomm_comm* comm); /* the first error any rank met */
SHARDCOMM_EXPORT void shardcomm_comm_abort(shardcomm_comm* comm, const char* why); /* any thread; returns at once */
SHARDCOMM_EXPORT void shardcomm_comm_destroy(shardcomm_comm* comm);

/* --- memory --- */

SHARDCOMM_EXPORT shardcomm_code shardcomm_window_allocate(shardcomm_comm* comm, size_t bytes, const char* label,
                                                          shardcomm_window** out); /* collective */
SHARDCOMM_EXPORT shardcomm_code shardcomm_window_register(shardcomm_comm* comm, void* base, size_t bytes,
                                                          const char* label, shardcomm_window** out); /* collective */
SHARDCOMM_EXPORT void* shardcomm_window_data(const shardcomm_window* window);
SHARDCOMM_EXPORT void shardcomm_window_destroy(shardcomm_window* window);

/* all ranks' parts side by side, for reading without a copy; its rules are in window.h */
SHARDCOMM_EXPORT shardcomm_code shardcomm_mosaic_allocate(shardcomm_comm* comm, size_t shard_bytes, const char* label,
                                                          shardcomm_mosaic** out); /* collective */
SHARDCOMM_EXPORT void* shardcomm_mosaic_shard(const shardcomm_mosaic* mosaic);
SHARDCOMM_EXPORT const void* shardcomm_mosaic_all(const shardcomm_mosaic* mosaic);
SHARDCOMM_EXPORT size_t shardcomm_mosaic_granularity_bytes(void);
SHARDCOMM_EXPORT void shardcomm_mosaic_destroy(shardcomm_mosaic* mosaic);

/* window memory that grows, with blocks that one rank takes and gives back by itself; its rules are in pool.h */
typedef struct {
  size_t struct_size;
  size_t initial_bytes; /* of the first segment, made at once; 0: the first take makes it */
  size_t max_bytes;     /* of all segments together; 0: what the machine has */
  const char* label;    /* the pool's name in messages; NULL for none */
} shardcomm_pool_params;
SHARDCOMM_EXPORT void shardcomm_pool_params_init_sized(shardcomm_pool_params* params, size_t struct_size);
#define shardcomm_pool_params_init(params) shardcomm_pool_params_init_sized((params), sizeof *(params))
/* local: no peer hears of it; params: NULL for the defaults */
SHARDCOMM_EXPORT shardcomm_code shardcomm_pool_create(shardcomm_comm* comm, const shardcomm_pool_params* params,
                                                      shardcomm_pool** out);
/* any thread, like give, report and trim; align: a power of two, 0 for 64; the contents are unspecified */
SHARDCOMM_EXPORT shardcomm_code shardcomm_pool_take(shardcomm_pool* pool, size_t bytes, size_t align, void** out);
/* SHARDCOMM_INVALID_ARGUMENT, and nothing changes, for what is not a block that is taken */
SHARDCOMM_EXPORT shardcomm_code shardcomm_pool_give(shardcomm_pool* pool, void* block);
typedef struct {
  size_t struct_size;
  size_t reserved_bytes;
  size_t used_bytes, peak_used_bytes; /* of blocks that are taken, each rounded up to 64 bytes */
  size_t segments;
  size_t blocks;
} shardcomm_pool_report_values;
SHARDCOMM_EXPORT shardcomm_code shardcomm_pool_report(const shardcomm_pool* pool, shardcomm_pool_report_values* out);
/* returns the segments in which nothing is taken to the system; the result is their bytes */
SHARDCOMM_EXPORT size_t shardcomm_pool_trim(shardcomm_pool* pool);
SHARDCOMM_EXPORT void shardcomm_pool_destroy(shardcomm_pool* pool); /* before the communicator or after it */

/* --- order --- */

/* kind 0, handle NULL: the caller's own thread, calls return when done. kind 0 with a handle from
   shardcomm_host_stream_create: asynchronous. kind 1: a cudaStream_t. */
typedef struct {
  int32_t kind;
  int32_t device;
  void* handle;
} shardcomm_stream;

SHARDCOMM_EXPORT shardcomm_code shardcomm_host_stream_create(const char* name, shardcomm_stream* out);
SHARDCOMM_EXPORT void shardcomm_host_stream_destroy(shardcomm_stream stream); /* drains it first */
SHARDCOMM_EXPORT shardcomm_code shardcomm_stream_synchronize(shardcomm_stream stream, int64_t timeout_ms);
SHARDCOMM_EXPORT shardcomm_code shardcomm_stream_wait(shardcomm_stream stream, const shardcomm_work* work);

SHARDCOMM_EXPORT shardcomm_code shardcomm_work_done(const shardcomm_work* work, int32_t* done);
SHARDCOMM_EXPORT shardcomm_code shardcomm_work_synchronize(const shardcomm_work* work, int64_t timeout_ms);
/* Calls `fn` once when the work has finished, well or not: on the thread that finishes it, or at once on the calling
   one if it is done already. It must not block. message: "" on success; valid during the call. */
typedef void (*shardcomm_work_fn)(void* user, shardcomm_code code, const char* message);
SHARDCOMM_EXPORT shardcomm_code shardcomm_work_on_done(const shardcomm_work* work, shardcomm_work_fn fn, void* user);
SHARDCOMM_EXPORT void shardcomm_work_release(shardcomm_work* work); /* cancels nothing */

/* --- collectives: `work` may be NULL --- */

SHARDCOMM_EXPORT shardcomm_code shardcomm_all_gather(shardcomm_comm* comm, const void* shard, void* full, size_t count,
                                                     int32_t dtype, shardcomm_stream stream, shardcomm_work** work);
SHARDCOMM_EXPORT shardcomm_code shardcomm_reduce_scatter(shardcomm_comm* comm, const void* full, void* shard,
                                                         size_t count, int32_t dtype, int32_t op,
                                                         shardcomm_stream stream, shardcomm_work** work);
SHARDCOMM_EXPORT shardcomm_code shardcomm_all_reduce(shardcomm_comm* comm, const void* in, void* out, size_t count,
                                                     int32_t dtype, int32_t op, shardcomm_stream stream,
                                                     shardcomm_work** work);
SHARDCOMM_EXPORT shardcomm_code shardcomm_broadcast(shardcomm_comm* comm, void* data, size_t count, int32_t dtype,
                                                    int32_t root, shardcomm_stream stream, shardcomm_work** work);
SHARDCOMM_EXPORT shardcomm_code shardcomm_all_to_all(shardcomm_comm* comm, const void* in, void* out,
                                                     size_t count_per_rank, int32_t dtype, shardcomm_stream stream,
                                                     shardcomm_work** work);
SHARDCOMM_EXPORT shardcomm_code shardcomm_barrier(shardcomm_comm* comm, shardcomm_stream stream, shardcomm_work** work);
/* ragged: counts[world_size], equal on every rank, zeros allowed; shards lie in rank order without gaps */
SHARDCOMM_EXPORT shardcomm_code shardcomm_all_gather_v(shardcomm_comm* comm, const void* shard, void* full,
                                                       const size_t* counts, int32_t dtype, shardcomm_stream stream,
                                                       shardcomm_work** work);
SHARDCOMM_EXPORT shardcomm_code shardcomm_reduce_scatter_v(shardcomm_comm* comm, const void* full, void* shard,
                                                           const size_t* counts, int32_t dtype, int32_t op,
                                                           shardcomm_stream stream, shardcomm_work** work);
/* rooted: what only the root reads or writes may be NULL on the other ranks */
SHARDCOMM_EXPORT shardcomm_code shardcomm_gather(shardcomm_comm* comm, const void* shard, void* full, size_t count,
                                                 int32_t dtype, int32_t root, shardcomm_stream stream,
                                                 shardcomm_work** work);
SHARDCOMM_EXPORT shardcomm_code shardcomm_scatter(shardcomm_comm* comm, const void* full, void* shard, size_t count,
                                                  int32_t dtype, int32_t root, shardcomm_stream stream,
                                                  shardcomm_work** work);
SHARDCOMM_EXPORT shardcomm_code shardcomm_reduce(shardcomm_comm* comm, const void* in, void* out, size_t count,
                                                 int32_t dtype, int32_t op, int32_t root, shardcomm_stream stream,
                                                 shardcomm_work** work);
/* in_counts[world_size], out_counts[world_size]: this rank's own, zeros allowed */
SHARDCOMM_EXPORT shardcomm_code shardcomm_all_to_all_v(shardcomm_comm* comm, const void* in, const size_t* in_counts,
                                                       void* out, const size_t* out_counts, int32_t dtype,
                                                       shardcomm_stream stream, shardcomm_work** work);
/* copies nothing: orders what owners wrote before what readers see */
SHARDCOMM_EXPORT shardcomm_code shardcomm_all_gather_mosaic(shardcomm_comm* comm, const shardcomm_mosaic* mosaic,
                                                            shardcomm_stream stream, shardcomm_work** work);
/* many tensors as one operation; dtypes and counts may differ from item to item */
typedef struct {
  const void* shard;
  void* full;
  size_t count;
  int32_t dtype;
} shardcomm_gather_item;
typedef struct {
  const void* full;
  void* shard;
  size_t count;
  int32_t dtype;
  int32_t op;
} shardcomm_reduce_item;
SHARDCOMM_EXPORT shardcomm_code shardcomm_all_gather_many(shardcomm_comm* comm, const shardcomm_gather_item* items,
                                                          size_t item_count, shardcomm_stream stream,
                                                          shardcomm_work** work);
SHARDCOMM_EXPORT shardcomm_code shardcomm_reduce_scatter_many(shardcomm_comm* comm, const shardcomm_reduce_item* items,
                                                              size_t item_count, shardcomm_stream stream,
                                                              shardcomm_work** work);
typedef struct {
  const void* in;
  void* out; /* in place: out == in */
  size_t count;
  int32_t dtype;
  int32_t op;
} shardcomm_all_reduce_item;
typedef struct {
  void* data; /* read on root, written on the others */
  size_t count;
  int32_t dtype;
} shardcomm_broadcast_item;
SHARDCOMM_EXPORT shardcomm_code shardcomm_all_reduce_many(shardcomm_comm* comm, const shardcomm_all_reduce_item* items,
                                                          size_t item_count, shardcomm_stream stream,
                                                          shardcomm_work** work);
SHARDCOMM_EXPORT shardcomm_code shardcomm_broadcast_many(shardcomm_comm* comm, const shardcomm_broadcast_item* items,
                                                         size_t item_count, int32_t root, shardcomm_stream stream,
                                                         shardcomm_work** work);

/* Any of the above, with all that may be said of it. Values are shardcomm::Collective. */
enum {
  SHARDCOMM_ALL_GATHER = 0,
  SHARDCOMM_REDUCE_SCATTER = 1,
  SHARDCOMM_ALL_REDUCE = 2,
  SHARDCOMM_BROADCAST = 3,
  SHARDCOMM_ALL_TO_ALL = 4,
  SHARDCOMM_BARRIER = 5,
  SHARDCOMM_ALL_GATHER_V = 6,
  SHARDCOMM_REDUCE_SCATTER_V = 7,
  SHARDCOMM_ALL_GATHER_MANY = 8,
  SHARDCOMM_REDUCE_SCATTER_MANY = 9,
  SHARDCOMM_GATHER = 10,
  SHARDCOMM_SCATTER = 11,
  SHARDCOMM_REDUCE = 12,
  SHARDCOMM_ALL_TO_ALL_V = 13,
  SHARDCOMM_ALL_REDUCE_MANY = 14,
  SHARDCOMM_BROADCAST_MANY = 15
};
/* One tensor of a _many form; `in` and `out` as in shardcomm_call. Grows as the structs do, by item_bytes. */
typedef struct {
  const void* in;
  void* out;
  size_t count;
  int32_t dtype;
  int32_t op;
  double scale; /* 0: 1 */
} shardcomm_item;
typedef struct {
  size_t struct_size;
  int32_t collective; /* SHARDCOMM_ALL_GATHER, … */
  int32_t dtype;
  int32_t op;
  int32_t root;
  const void* in;           /* what this rank gives: its shard, or all that it reduces or scatters */
  void* out;                /* what it gets; of a broadcast, the data on every rank, with `in` NULL */
  size_t count;             /* elements per shard or tensor; of all_to_all, per rank */
  const size_t* counts;     /* [world_size]: of the ragged forms; of all_to_all_v, what `in` has for each rank */
  const size_t* out_counts; /* [world_size]: of all_to_all_v, what `out` has of each rank */
  const shardcomm_item* items;
  size_t item_count;
  size_t item_bytes;              /* sizeof (shardcomm_item), as _init sets it */
  const shardcomm_mosaic* mosaic; /* of all_gather, instead of in, out, count and dtype; it has a label */
  const char* label;              /* names the operation in errors and flight records; equal on all ranks */
  int64_t timeout_ms;             /* 0: the communicator's */
  double scale;                   /* times the result of a reduction of one tensor, before it is rounded; 0: 1 */
} shardcomm_call;
/* an all_gather of f32, all else 0 or NULL; a reduction sums */
SHARDCOMM_EXPORT void shardcomm_call_init_sized(shardcomm_call* call, size_t struct_size, size_t item_bytes);
#define shardcomm_call_init(call) shardcomm_call_init_sized((call), sizeof *(call), sizeof(shardcomm_item))
SHARDCOMM_EXPORT shardcomm_code shardcomm_enqueue(shardcomm_comm* comm, const shardcomm_call* call,
                                                  shardcomm_stream stream, shardcomm_work** work);

/* --- prepared calls: of many tensors, made again and again; prepared.h says more --- */

/* local: no peer hears of it; label: NULL for none */
SHARDCOMM_EXPORT shardcomm_code shardcomm_prepare_gather(shardcomm_comm* comm, const shardcomm_gather_item* items,
                                                         size_t item_count, const char* label,
                                                         shardcomm_prepared** out);
SHARDCOMM_EXPORT shardcomm_code shardcomm_prepare_reduce(shardcomm_comm* comm, const shardcomm_reduce_item* items,
                                                         size_t item_count, const char* label,
                                                         shardcomm_prepared** out);
/* a collective call, which peers see as all_gather_many or reduce_scatter_many with that label */
SHARDCOMM_EXPORT shardcomm_code shardcomm_run_prepared(shardcomm_prepared* prepared, shardcomm_stream stream,
                                                       shardcomm_work** work);
/* before the communicator or after it, and while a run is still in a stream */
SHARDCOMM_EXPORT void shardcomm_prepared_destroy(shardcomm_prepared* prepared);

/* --- messages between two ranks: matched in order by pair of ranks and tag, beside the collectives; communicator.h
   says more. dtype and count of both sides are equal. A peer may be the rank itself. --- */

SHARDCOMM_EXPORT shardcomm_code shardcomm_send(shardcomm_comm* comm, const void* data, size_t count, int32_t dtype,
                                               int32_t peer, int32_t tag, shardcomm_stream stream,
                                               shardcomm_work** work);
SHARDCOMM_EXPORT shardcomm_code shardcomm_recv(shardcomm_comm* comm, void* data, size_t count, int32_t dtype,
                                               int32_t peer, int32_t tag, shardcomm_stream stream,
                                               shardcomm_work** work);
enum { SHARDCOMM_SEND = 0, SHARDCOMM_RECV = 1 };
typedef struct {
  size_t struct_size;
  int32_t direction; /* SHARDCOMM_SEND or SHARDCOMM_RECV */
  int32_t dtype;
  int32_t peer;
  int32_t tag;
  void* data; /* only read where it is sent */
  size_t count;
  const char* label;  /* NULL: none */
  int64_t timeout_ms; /* 0: the communicator's; the longest holds for all messages of one call */
} shardcomm_message;
SHARDCOMM_EXPORT void shardcomm_message_init_sized(shardcomm_message* message, size_t struct_size);
#define shardcomm_message_init(message) shardcomm_message_init_sized((message), sizeof *(message))
/* one operation; none of them waits for another, so two ranks may both send and receive in it */
SHARDCOMM_EXPORT shardcomm_code shardcomm_send_recv_many(shardcomm_comm* comm, const shardcomm_message* messages,
                                                         size_t message_count, shardcomm_stream stream,
                                                         shardcomm_work** work);
/* collective over the listed ranks only, in whose order they are the new communicator's; the others take no part */
SHARDCOMM_EXPORT shardcomm_code shardcomm_comm_subgroup(shardcomm_comm* comm, const int32_t* ranks, size_t rank_count,
                                                        const char* label, shardcomm_comm** out);

/* --- ZeRO --- */

typedef struct {
  size_t struct_size;
  const char* name; /* unique in its unit */
  const size_t* shape;
  size_t dimensions;
  int32_t dtype;       /* SHARDCOMM_F32 or SHARDCOMM_BF16 */
  int32_t trainable;   /* 0: frozen */
  float decay_factor;  /* times shardcomm_adam_params.weight_decay */
  const char* tied_to; /* "unit.name" of an earlier parameter, or NULL */
} shardcomm_tensor;
/* a trainable f32 scalar without a name, with a decay_factor of 1 */
SHARDCOMM_EXPORT void shardcomm_tensor_init_sized(shardcomm_tensor* tensor, size_t struct_size);
#define shardcomm_tensor_init(tensor) shardcomm_tensor_init_sized((tensor), sizeof *(tensor))

typedef struct {
  size_t struct_size;
  const char* name;
  const shardcomm_tensor* parameters; /* stepped by the struct_size of each */
  size_t parameter_count;
} shardcomm_unit;
/* a unit without a name and without parameters */
SHARDCOMM_EXPORT void shardcomm_unit_init_sized(shardcomm_unit* unit, size_t struct_size);
#define shardcomm_unit_init(unit) shardcomm_unit_init_sized((unit), sizeof *(unit))

typedef struct {
  size_t struct_size;
  int32_t stage; /* 0 to 3 */
  int32_t prefetch_units;
  size_t bucket_bytes;         /* moved by one collective at most; 0: no limit */
  size_t gathered_bytes_limit; /* 0: the two largest units */
  int32_t free_after_forward;
  int32_t gradient_dtype; /* SHARDCOMM_F32 or SHARDCOMM_BF16 */
  int32_t mosaic;         /* 1: read values in all ranks' memory, without gathers */
  int32_t padding;        /* of version 1.0: never read */
  /* since 1.1 */
  int32_t poison_freed; /* 1: freed parameters and gradients read as NaN, so that late uses show */
  int32_t reserved;
} shardcomm_zero_params;
/* Fills in the defaults of ZeroOptions, struct_size included. */
SHARDCOMM_EXPORT void shardcomm_zero_params_init(shardcomm_zero_params* params);
SHARDCOMM_EXPORT void shardcomm_zero_params_init_sized(shardcomm_zero_params* params, size_t struct_size);
#define shardcomm_zero_params_init(params) shardcomm_zero_params_init_sized((params), sizeof *(params))

typedef struct {
  void* value;    /* for reading */
  void* gradient; /* NULL in forward and for frozen parameters */
  size_t count;
  int32_t dtype;
  int32_t gradient_dtype;
} shardcomm_view;
typedef struct {
  uint32_t unit, parameter;
  size_t offset; /* first element, in the flattened parameter */
  size_t count;
  void* value;     /* for reading; what changes it is written through shardcomm_zero_shard_master */
  float* gradient; /* NULL for frozen parameters; final after finish_step */
} shardcomm_piece;
typedef struct {
  size_t struct_size;
  size_t parameter_bytes, gradient_bytes, optimizer_bytes, gathered_bytes, unreduced_bytes, live_bytes, peak_bytes;
} shardcomm_memory_report;

/* Writes elements [offset, offset + count) of one parameter, in f32. */
typedef void (*shardcomm_fill_fn)(void* user, uint32_t unit, uint32_t parameter, size_t offset, float* values,
                                  size_t count);

/* collective; `comm` must outlive it; params NULL: the defaults */
SHARDCOMM_EXPORT shardcomm_code shardcomm_zero_create(shardcomm_comm* comm, const shardcomm_unit* units,
                                                      size_t unit_count, const shardcomm_zero_params* params,
                                                      shardcomm_zero** out);
SHARDCOMM_EXPORT void shardcomm_zero_destroy(shardcomm_zero* zero);
SHARDCOMM_EXPORT shardcomm_code shardcomm_zero_fill(shardcomm_zero* zero, shardcomm_fill_fn fill, void* user);
enum { SHARDCOMM_FORWARD = 0, SHARDCOMM_BACKWARD = 1 }; /* of every `pass` below */
SHARDCOMM_EXPORT shardcomm_code shardcomm_zero_before(shardcomm_zero* zero, uint32_t unit, int32_t pass,
                                                      shardcomm_stream compute);
SHARDCOMM_EXPORT shardcomm_code shardcomm_zero_after(shardcomm_zero* zero, uint32_t unit, int32_t pass,
                                                     shardcomm_stream compute);
SHARDCOMM_EXPORT shardcomm_code shardcomm_zero_finish_step(shardcomm_zero* zero, shardcomm_stream compute);
SHARDCOMM_EXPORT void shardcomm_zero_set_gradient_sync(shardcomm_zero* zero, int32_t on);
/* Not between before and after of a unit. A failure is given by the next call of before, after, finish_step or
   begin_update, which then does nothing else and may be repeated. */
SHARDCOMM_EXPORT void shardcomm_zero_zero_gradients(shardcomm_zero* zero);

/* An optimizer of your own, after finish_step: begin_update, then write the masters of all pieces (f32 at every dtype),
   then publish, which makes the values of them and gives them to all ranks; then zero_gradients. Parameters that are
   written at any other time, or otherwise, are SHARDCOMM_FAILED_PRECONDITION at the next hook; zero.h says how far such
   writes are found. publish_unit publishes one unit as soon as its masters are final, so that its gather runs while the
   next is computed; publish does the rest and ends the update. All ranks publish in the same order. */
SHARDCOMM_EXPORT shardcomm_code shardcomm_zero_begin_update(shardcomm_zero* zero);
SHARDCOMM_EXPORT shardcomm_code shardcomm_zero_publish_unit(shardcomm_zero* zero, uint32_t unit); /* collective */
SHARDCOMM_EXPORT shardcomm_code shardcomm_zero_publish(shardcomm_zero* zero);                     /* collective */
/* Blocks until everything in flight has ended, published values included. */
SHARDCOMM_EXPORT shardcomm_code shardcomm_zero_synchronize(shardcomm_zero* zero, int64_t timeout_ms);
/* the whole parameter and its gradient: only between before and after */
SHARDCOMM_EXPORT shardcomm_code shardcomm_zero_parameter(const shardcomm_zero* zero, uint32_t unit, size_t index,
                                                         shardcomm_view* out);
SHARDCOMM_EXPORT size_t shardcomm_zero_piece_count(const shardcomm_zero* zero);
SHARDCOMM_EXPORT shardcomm_code shardcomm_zero_shard(const shardcomm_zero* zero, size_t piece, shardcomm_piece* out);
/* [count] f32 of the piece; the value itself where that is f32; NULL for frozen parameters. Valid as long as `zero`. */
SHARDCOMM_EXPORT shardcomm_code shardcomm_zero_shard_master(const shardcomm_zero* zero, size_t piece, float** master);
/* elements of an array over all trainable pieces, with padding; and where such arrays have one piece */
SHARDCOMM_EXPORT size_t shardcomm_zero_optimized_count(const shardcomm_zero* zero);
SHARDCOMM_EXPORT shardcomm_code shardcomm_zero_shard_state_offset(const shardcomm_zero* zero, size_t piece,
                                                                  size_t* offset);
SHARDCOMM_EXPORT shardcomm_code shardcomm_zero_gradient_norm(shardcomm_zero* zero, double* norm); /* collective */
SHARDCOMM_EXPORT shardcomm_code shardcomm_zero_memory_report(const shardcomm_zero* zero, shardcomm_memory_report* out);
SHARDCOMM_EXPORT void shardcomm_zero_reset_peak(shardcomm_zero* zero); /* peak_bytes counts from now */

/* What a run of this shape with AdamW would need and move per rank and step; needs no communicator. */
typedef struct {
  size_t struct_size;
  size_t peak_bytes;     /* to compare with that of shardcomm_memory_report */
  size_t bytes_per_step; /* parameter and gradient payload sent by one rank in one step after the first */
  size_t parameter_count;
} shardcomm_zero_estimate;
/* params NULL: the defaults; formula, if not NULL: bytes_per_step in words and numbers */
SHARDCOMM_EXPORT shardcomm_code shardcomm_estimate_zero(const shardcomm_unit* units, size_t unit_count,
                                                        int32_t world_size, const shardcomm_zero_params* params,
                                                        shardcomm_zero_estimate* out, char** formula);

typedef struct {
  size_t struct_size;
  float beta1, beta2, eps, weight_decay;
} shardcomm_adam_params;
SHARDCOMM_EXPORT void shardcomm_adam_params_init(shardcomm_adam_params* params); /* defaults of AdamWOptions */
SHARDCOMM_EXPORT void shardcomm_adam_params_init_sized(shardcomm_adam_params* params, size_t struct_size);
#define shardcomm_adam_params_init(params) shardcomm_adam_params_init_sized((params), sizeof *(params))
SHARDCOMM_EXPORT shardcomm_code shardcomm_adam_create(shardcomm_zero* zero, const shardcomm_adam_params* params,
                                                      shardcomm_adam** out);
SHARDCOMM_EXPORT void shardcomm_adam_destroy(shardcomm_adam* adam);
SHARDCOMM_EXPORT shardcomm_code shardcomm_adam_step(shardcomm_adam* adam, float learning_rate, float gradient_scale);
SHARDCOMM_EXPORT uint64_t shardcomm_adam_steps(const shardcomm_adam* adam);

/* --- checkpoints: checkpoint.h --- */

/* An array that a checkpoint keeps beside the parameters, like the momentum of an optimizer of your own: one f32
   element for each of shardcomm_zero_optimized_count, of which a piece has those from shardcomm_zero_shard_state_offset
   on. */
typedef struct {
  size_t struct_size;
  const char* name; /* letters, digits, '_', '-' and '.', 64 at most; equal on all ranks */
  float* values;    /* a save reads them, a load writes them */
  size_t count;     /* optimized_count */
} shardcomm_named_state;

/* What is saved beside the parameters, and how. */
typedef struct {
  size_t struct_size;
  shardcomm_adam* adam;      /* its moments and steps; NULL: none */
  const char* trainer_state; /* a JSON object of the caller's own; NULL: {} */
  uint64_t step;
  int32_t keep; /* > 0: then removes all but the newest `keep` complete ones */
  int32_t reserved;
  const shardcomm_named_state* states;
  size_t state_count;
} shardcomm_save_params;
SHARDCOMM_EXPORT void shardcomm_save_params_init_sized(shardcomm_save_params* params, size_t struct_size);
#define shardcomm_save_params_init(params) shardcomm_save_params_init_sized((params), sizeof *(params))
/* collective; path, if not NULL: the directory written, DIR/step-NNNNNNNN */
SHARDCOMM_EXPORT shardcomm_code shardcomm_checkpoint_save(shardcomm_zero* zero, const char* dir,
                                                          const shardcomm_save_params* params, char** path);

/* Where what was saved beside the parameters goes. */
typedef struct {
  size_t struct_size;
  shardcomm_adam* adam; /* NULL: none */
  const shardcomm_named_state* states;
  size_t state_count;
  int32_t ignore_other_states; /* 1: states of the checkpoint that are not asked for stay where they are; 0: refused */
  int32_t reserved;
} shardcomm_load_params;
SHARDCOMM_EXPORT void shardcomm_load_params_init_sized(shardcomm_load_params* params, size_t struct_size);
#define shardcomm_load_params_init(params) shardcomm_load_params_init_sized((params), sizeof *(params))
/* collective; path: one step directory; step and trainer_state may be NULL */
SHARDCOMM_EXPORT shardcomm_code shardcomm_checkpoint_load(shardcomm_zero* zero, const char* path,
                                                          const shardcomm_load_params* params, uint64_t* step,
                                                          char** trainer_state);

/* The newest complete step directory in `dir`; *path is NULL if there is none. */
SHARDCOMM_EXPORT shardcomm_code shardcomm_checkpoint_newest(const char* dir, char** path);

/* collective; as above, without the path and the trainer's state; adam: NULL for parameters alone; trainer_state: a
   JSON object, or NULL */
SHARDCOMM_EXPORT shardcomm_code shardcomm_zero_save(shardcomm_zero* zero, shardcomm_adam* adam, const char* dir,
                                                    uint64_t step, const char* trainer_state, int32_t keep);
SHARDCOMM_EXPORT shardcomm_code shardcomm_zero_load(shardcomm_zero* zero, shardcomm_adam* adam, const char* path,
                                                    uint64_t* step);

#ifdef __cplusplus
}
#endif
#endif
