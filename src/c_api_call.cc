// The C ABI of any collective by one function: its call struct is taken apart into the C++ twin's arguments.
#include <chrono>
#include <utility>
#include <vector>

#include "c_api_support.h"

SHARDCOMM_GROWS(shardcomm_call, scale, scale, "shardcomm_call_init");
SHARDCOMM_GROWS(shardcomm_item, scale, scale, "");

using namespace shardcomm;
using namespace shardcomm::c_api;

namespace {

shardcomm_call default_call(size_t item_bytes) {
  shardcomm_call call{};
  call.struct_size = sizeof call;
  call.dtype = SHARDCOMM_F32;
  call.item_bytes = item_bytes;
  return call;
}

double scale_of(double scale) { return scale == 0 ? 1 : scale; }

template <class Args>
concept HasScale = requires(Args args) {
  args.scale;
};

// The items as those of C++, each made by make(item).
template <class Item, class Make>
Result<std::vector<Item>> to_items(const shardcomm_call& call, Make&& make) {
  std::vector<Item> items;
  if (call.item_count == 0) return items;
  if (call.items == nullptr) return null_argument("call.items");
  if (call.item_bytes == 0)
    return Status(Code::kInvalidArgument, "call.item_bytes is 0, it must be the sizeof of shardcomm_item");
  items.reserve(call.item_count);
  const auto* at = reinterpret_cast<const std::byte*>(call.items);
  for (size_t i = 0; i < call.item_count; ++i, at += call.item_bytes) {
    SHARDCOMM_TRY_ASSIGN(const auto item, read_sized<shardcomm_item>(at, call.item_bytes, {}, "item"));
    if (!HasScale<Item> && scale_of(item.scale) != 1)
      return Status(Code::kInvalidArgument, "item " + std::to_string(i) + " has a scale, which is for reductions");
    items.push_back(make(item));
  }
  return items;
}

template <class Item>
Item scaled(Item item, double scale) {
  if constexpr (HasScale<Item>) item.scale = scale_of(scale);
  return item;
}

// What a call of one collective is made of, besides where it goes.
struct Context {
  Communicator& comm;
  const shardcomm_call& call;
  StreamRef stream;

  DType dtype() const { return to_dtype(call.dtype); }
  ReduceOp op() const { return to_op(call.op); }
  std::string_view label() const { return text(call.label); }
  std::chrono::milliseconds timeout() const { return std::chrono::milliseconds(call.timeout_ms); }
  std::span<const size_t> counts() const { return {call.counts, static_cast<size_t>(comm.size())}; }

  // Fills in what arguments of all collectives have.
  template <class Args>
  Args with(Args args) const {
    args.label = label();
    args.timeout = timeout();
    return scaled(args, call.scale);
  }
};

// What has no arguments struct takes the label and the timeout last.
template <class Enqueue>
Result<Work> labelled(const Context& c, Enqueue&& enqueue) {
  return enqueue(c.label(), c.timeout());
}

// The data of a broadcast is `out` on every rank.
Status check_broadcast(const void* in, const void* out) {
  if (in == nullptr || in == out) return {};
  return Status(Code::kInvalidArgument, "the data of a broadcast is 'out' on every rank, and 'in' must be NULL");
}

Result<Work> all_gather(const Context& c) {
  if (c.call.mosaic != nullptr) return c.comm.all_gather(c.call.mosaic->mosaic, c.stream);
  return c.comm.all_gather(
      c.with(AllGatherArgs{.shard = c.call.in, .full = c.call.out, .count = c.call.count, .dtype = c.dtype()}),
      c.stream);
}
Result<Work> reduce_scatter(const Context& c) {
  return c.comm.reduce_scatter(
      c.with(ReduceScatterArgs{
          .full = c.call.in, .shard = c.call.out, .count = c.call.count, .dtype = c.dtype(), .op = c.op()}),
      c.stream);
}
Result<Work> all_reduce(const Context& c) {
  return c.comm.all_reduce(
      c.with(
          AllReduceArgs{.in = c.call.in, .out = c.call.out, .count = c.call.count, .dtype = c.dtype(), .op = c.op()}),
      c.stream);
}
Result<Work> broadcast(const Context& c) {
  SHARDCOMM_TRY(check_broadcast(c.call.in, c.call.out));
  return c.comm.broadcast(
      c.with(BroadcastArgs{.data = c.call.out, .count = c.call.count, .dtype = c.dtype(), .root = c.call.root}),
      c.stream);
}
Result<Work> all_to_all(const Context& c) {
  return c.comm.all_to_all(
      c.with(AllToAllArgs{.in = c.call.in, .out = c.call.out, .count_per_rank = c.call.count, .dtype = c.dtype()}),
      c.stream);
}
Result<Work> barrier(const Context& c) {
  return labelled(c, [&](auto... last) -> decltype(c.comm.barrier(c.stream, last...)) {
    return c.comm.barrier(c.stream, last...);
  });
}
Result<Work> all_gather_v(const Context& c) {
  if (c.call.counts == nullptr) return null_argument("call.counts");
  return c.comm.all_gather_v(
      c.with(AllGatherVArgs{.shard = c.call.in, .full = c.call.out, .counts = c.counts(), .dtype = c.dtype()}),
      c.stream);
}
Result<Work> reduce_scatter_v(const Context& c) {
  if (c.call.counts == nullptr) return null_argument("call.counts");
  return c.comm.reduce_scatter_v(
      c.with(ReduceScatterVArgs{
          .full = c.call.in, .shard = c.call.out, .counts = c.counts(), .dtype = c.dtype(), .op = c.op()}),
      c.stream);
}
Result<Work> all_gather_many(const Context& c) {
  SHARDCOMM_TRY_ASSIGN(const auto items, to_items<GatherItem>(c.call, [](const shardcomm_item& item) {
                         return GatherItem{
                             .shard = item.in, .full = item.out, .count = item.count, .dtype = to_dtype(item.dtype)};
                       }));
  return labelled(c, [&](auto... last) -> decltype(c.comm.all_gather_many(items, c.stream, last...)) {
    return c.comm.all_gather_many(items, c.stream, last...);
  });
}
Result<Work> reduce_scatter_many(const Context& c) {
  SHARDCOMM_TRY_ASSIGN(const auto items, to_items<ReduceItem>(c.call, [](const shardcomm_item& item) {
                         return scaled(ReduceItem{.full = item.in,
                                                  .shard = item.out,
                                                  .count = item.count,
                                                  .dtype = to_dtype(item.dtype),
                                                  .op = to_op(item.op)},
                                       item.scale);
                       }));
  return labelled(c, [&](auto... last) -> decltype(c.comm.reduce_scatter_many(items, c.stream, last...)) {
    return c.comm.reduce_scatter_many(items, c.stream, last...);
  });
}
Result<Work> gather(const Context& c) {
  return c.comm.gather(
      c.with(GatherArgs{
          .shard = c.call.in, .full = c.call.out, .count = c.call.count, .dtype = c.dtype(), .root = c.call.root}),
      c.stream);
}
Result<Work> scatter(const Context& c) {
  return c.comm.scatter(
      c.with(ScatterArgs{
          .full = c.call.in, .shard = c.call.out, .count = c.call.count, .dtype = c.dtype(), .root = c.call.root}),
      c.stream);
}
Result<Work> reduce(const Context& c) {
  return c.comm.reduce(c.with(ReduceArgs{.in = c.call.in,
                                         .out = c.call.out,
                                         .count = c.call.count,
                                         .dtype = c.dtype(),
                                         .op = c.op(),
                                         .root = c.call.root}),
                       c.stream);
}
Result<Work> all_to_all_v(const Context& c) {
  if (c.call.counts == nullptr) return null_argument("call.counts");
  if (c.call.out_counts == nullptr) return null_argument("call.out_counts");
  return c.comm.all_to_all_v(c.with(AllToAllVArgs{.in = c.call.in,
                                                  .in_counts = c.counts(),
                                                  .out = c.call.out,
                                                  .out_counts = {c.call.out_counts, c.counts().size()},
                                                  .dtype = c.dtype()}),
                             c.stream);
}
Result<Work> all_reduce_many(const Context& c) {
  SHARDCOMM_TRY_ASSIGN(const auto items, to_items<AllReduceItem>(c.call, [](const shardcomm_item& item) {
                         return scaled(AllReduceItem{.in = item.in,
                                                     .out = item.out,
                                                     .count = item.count,
                                                     .dtype = to_dtype(item.dtype),
                                                     .op = to_op(item.op)},
                                       item.scale);
                       }));
  return labelled(c, [&](auto... last) -> decltype(c.comm.all_reduce_many(items, c.stream, last...)) {
    return c.comm.all_reduce_many(items, c.stream, last...);
  });
}
Result<Work> broadcast_many(const Context& c) {
  Status data;
  SHARDCOMM_TRY_ASSIGN(const auto items, to_items<BroadcastItem>(c.call, [&](const shardcomm_item& item) {
                         if (data.ok()) data = check_broadcast(item.in, item.out);
                         return BroadcastItem{.data = item.out, .count = item.count, .dtype = to_dtype(item.dtype)};
                       }));
  SHARDCOMM_TRY(data);
  return labelled(c, [&](auto... last) -> decltype(c.comm.broadcast_many(items, c.call.root, c.stream, last...)) {
    return c.comm.broadcast_many(items, c.call.root, c.stream, last...);
  });
}

struct Row {
  Collective collective;
  Result<Work> (*enqueue)(const Context&);
};

// In the order of their values.
constexpr Row kRows[] = {{Collective::kAllGather, all_gather},
                         {Collective::kReduceScatter, reduce_scatter},
                         {Collective::kAllReduce, all_reduce},
                         {Collective::kBroadcast, broadcast},
                         {Collective::kAllToAll, all_to_all},
                         {Collective::kBarrier, barrier},
                         {Collective::kAllGatherV, all_gather_v},
                         {Collective::kReduceScatterV, reduce_scatter_v},
                         {Collective::kAllGatherMany, all_gather_many},
                         {Collective::kReduceScatterMany, reduce_scatter_many},
                         {Collective::kGather, gather},
                         {Collective::kScatter, scatter},
                         {Collective::kReduce, reduce},
                         {Collective::kAllToAllV, all_to_all_v},
                         {Collective::kAllReduceMany, all_reduce_many},
                         {Collective::kBroadcastMany, broadcast_many}};

constexpr bool rows_are_complete() {
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (static_cast<size_t>(kRows[i].collective) != i) return false;
  }
  return std::size(kRows) == kCollectiveCount;
}
static_assert(rows_are_complete());

// What the collective itself does not look at.
Status check_call(const shardcomm_call& call) {
  if (call.collective < 0 || call.collective >= kCollectiveCount)
    return Status(Code::kInvalidArgument, "call.collective " + std::to_string(call.collective) + " does not exist");
  if (call.timeout_ms < 0)
    return Status(Code::kInvalidArgument,
                  "call.timeout_ms must not be negative, got " + std::to_string(call.timeout_ms));
  const auto collective = static_cast<Collective>(call.collective);
  if (scale_of(call.scale) != 1 && (!reduces(collective) || traits(collective).is_many))
    return Status(Code::kInvalidArgument,
                  "call.scale is for reductions of one tensor, not for " + std::string(name(collective)));
  if (call.mosaic != nullptr && collective != Collective::kAllGather)
    return Status(Code::kInvalidArgument, "call.mosaic is for all_gather, not for " + std::string(name(collective)));
  if (call.mosaic != nullptr && (call.label != nullptr || call.timeout_ms != 0))
    return Status(Code::kInvalidArgument,
                  "a gather of call.mosaic has the mosaic's label and the communicator's timeout, not the call's");
  return {};
}

}  // namespace

void shardcomm_call_init_sized(shardcomm_call* call, size_t struct_size, size_t item_bytes) {
  init_sized(default_call(item_bytes), call, struct_size);
}

shardcomm_code shardcomm_enqueue(shardcomm_comm* comm, const shardcomm_call* call, shardcomm_stream stream,
                                 shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) -> Result<Work> {
    SHARDCOMM_REQUIRE(call);
    SHARDCOMM_TRY_ASSIGN(const auto read, read_growing(call, default_call(sizeof(shardcomm_item)), "call"));
    SHARDCOMM_TRY(check_call(read));
    return kRows[read.collective].enqueue({c, read, on});
  });
}
