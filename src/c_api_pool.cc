// The C ABI of memory pools.
#include "c_api_support.h"

using namespace shardcomm;
using namespace shardcomm::c_api;

SHARDCOMM_GROWS(shardcomm_pool_params, label, label, "shardcomm_pool_params_init");
SHARDCOMM_GROWS(shardcomm_pool_report_values, blocks, blocks, "");

struct shardcomm_pool {
  MemoryPool pool;
};

void shardcomm_pool_params_init_sized(shardcomm_pool_params* params, size_t struct_size) {
  init_sized(shardcomm_pool_params{}, params, struct_size);
}

shardcomm_code shardcomm_pool_create(shardcomm_comm* comm, const shardcomm_pool_params* params, shardcomm_pool** out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(comm);
    SHARDCOMM_REQUIRE(out);
    shardcomm_pool_params read{};
    if (params != nullptr) {
      SHARDCOMM_TRY_ASSIGN(read, read_growing(params, shardcomm_pool_params{}, "params"));
    }
    const PoolOptions options{
        .initial_bytes = read.initial_bytes, .max_bytes = read.max_bytes, .label = text(read.label)};
    return deliver(MemoryPool::create(comm->comm, options), out);
  });
}

shardcomm_code shardcomm_pool_take(shardcomm_pool* pool, size_t bytes, size_t align, void** out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(pool);
    SHARDCOMM_REQUIRE(out);
    constexpr size_t kDefaultAlign = 64;
    SHARDCOMM_TRY_ASSIGN(*out, pool->pool.take(bytes, align == 0 ? kDefaultAlign : align));
    return {};
  });
}

shardcomm_code shardcomm_pool_give(shardcomm_pool* pool, void* block) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(pool);
    return pool->pool.give(block);
  });
}

shardcomm_code shardcomm_pool_report(const shardcomm_pool* pool, shardcomm_pool_report_values* out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(pool);
    SHARDCOMM_REQUIRE(out);
    const PoolReport report = pool->pool.report();
    return write_growing<shardcomm_pool_report_values>({.struct_size = 0,
                                                        .reserved_bytes = report.reserved_bytes,
                                                        .used_bytes = report.used_bytes,
                                                        .peak_used_bytes = report.peak_used_bytes,
                                                        .segments = report.segments,
                                                        .blocks = report.blocks},
                                                       out, "out");
  });
}

size_t shardcomm_pool_trim(shardcomm_pool* pool) { return pool == nullptr ? 0 : pool->pool.trim(); }

void shardcomm_pool_destroy(shardcomm_pool* pool) { delete pool; }
