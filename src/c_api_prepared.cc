// The C ABI of prepared calls.
#include <vector>

#include "c_api_support.h"

using namespace shardcomm;
using namespace shardcomm::c_api;

struct shardcomm_prepared {
  PreparedCall call;
};

shardcomm_code shardcomm_prepare_gather(shardcomm_comm* comm, const shardcomm_gather_item* items, size_t item_count,
                                        const char* label, shardcomm_prepared** out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(comm);
    if (item_count != 0) SHARDCOMM_REQUIRE(items);
    SHARDCOMM_REQUIRE(out);
    std::vector<GatherItem> list;
    list.reserve(item_count);
    for (size_t i = 0; i < item_count; ++i)
      list.push_back({items[i].shard, items[i].full, items[i].count, to_dtype(items[i].dtype)});
    return deliver(comm->comm.prepare_gather(list, text(label)), out);
  });
}

shardcomm_code shardcomm_prepare_reduce(shardcomm_comm* comm, const shardcomm_reduce_item* items, size_t item_count,
                                        const char* label, shardcomm_prepared** out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(comm);
    if (item_count != 0) SHARDCOMM_REQUIRE(items);
    SHARDCOMM_REQUIRE(out);
    std::vector<ReduceItem> list;
    list.reserve(item_count);
    for (size_t i = 0; i < item_count; ++i) {
      list.push_back({items[i].full, items[i].shard, items[i].count, to_dtype(items[i].dtype), to_op(items[i].op)});
    }
    return deliver(comm->comm.prepare_reduce(list, text(label)), out);
  });
}

shardcomm_code shardcomm_run_prepared(shardcomm_prepared* prepared, shardcomm_stream stream, shardcomm_work** work) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(prepared);
    SHARDCOMM_TRY_ASSIGN(const StreamRef on, to_stream(stream));
    Result<Work> result = prepared->call.run(on);
    if (work == nullptr || !result.ok()) return result.status();
    return deliver(std::move(result), work);
  });
}

void shardcomm_prepared_destroy(shardcomm_prepared* prepared) { delete prepared; }
