// The C ABI of the rooted collectives, of all_to_all_v, and of the many-tensor forms with them.
#include <vector>

#include "c_api_support.h"

using namespace shardcomm;
using namespace shardcomm::c_api;

shardcomm_code shardcomm_gather(shardcomm_comm* comm, const void* shard, void* full, size_t count, int32_t dtype,
                                int32_t root, shardcomm_stream stream, shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) {
    return c.gather({.shard = shard, .full = full, .count = count, .dtype = to_dtype(dtype), .root = root}, on);
  });
}
shardcomm_code shardcomm_scatter(shardcomm_comm* comm, const void* full, void* shard, size_t count, int32_t dtype,
                                 int32_t root, shardcomm_stream stream, shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) {
    return c.scatter({.full = full, .shard = shard, .count = count, .dtype = to_dtype(dtype), .root = root}, on);
  });
}
shardcomm_code shardcomm_reduce(shardcomm_comm* comm, const void* in, void* out, size_t count, int32_t dtype,
                                int32_t op, int32_t root, shardcomm_stream stream, shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) {
    return c.reduce({.in = in, .out = out, .count = count, .dtype = to_dtype(dtype), .op = to_op(op), .root = root},
                    on);
  });
}
shardcomm_code shardcomm_all_to_all_v(shardcomm_comm* comm, const void* in, const size_t* in_counts, void* out,
                                      const size_t* out_counts, int32_t dtype, shardcomm_stream stream,
                                      shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) -> Result<Work> {
    SHARDCOMM_REQUIRE(in_counts);
    SHARDCOMM_REQUIRE(out_counts);
    const auto ranks = static_cast<size_t>(c.size());
    return c.all_to_all_v({.in = in,
                           .in_counts = {in_counts, ranks},
                           .out = out,
                           .out_counts = {out_counts, ranks},
                           .dtype = to_dtype(dtype)},
                          on);
  });
}
shardcomm_code shardcomm_all_reduce_many(shardcomm_comm* comm, const shardcomm_all_reduce_item* items,
                                         size_t item_count, shardcomm_stream stream, shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) -> Result<Work> {
    if (item_count != 0) SHARDCOMM_REQUIRE(items);
    std::vector<AllReduceItem> list;
    list.reserve(item_count);
    for (size_t i = 0; i < item_count; ++i) {
      const shardcomm_all_reduce_item& item = items[i];
      list.push_back(
          {.in = item.in, .out = item.out, .count = item.count, .dtype = to_dtype(item.dtype), .op = to_op(item.op)});
    }
    return c.all_reduce_many(list, on);
  });
}
shardcomm_code shardcomm_broadcast_many(shardcomm_comm* comm, const shardcomm_broadcast_item* items, size_t item_count,
                                        int32_t root, shardcomm_stream stream, shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) -> Result<Work> {
    if (item_count != 0) SHARDCOMM_REQUIRE(items);
    std::vector<BroadcastItem> list;
    list.reserve(item_count);
    for (size_t i = 0; i < item_count; ++i)
      list.push_back({.data = items[i].data, .count = items[i].count, .dtype = to_dtype(items[i].dtype)});
    return c.broadcast_many(list, root, on);
  });
}
