// Start here. A Communicator is this rank's membership of a fixed group of ranks.
//
//   auto store = shardcomm::open_store("env://");
//   auto place = shardcomm::LaunchedRank::from_env();
//   auto comm = shardcomm::Communicator::create(**store, {place->rank, place->world_size}, options);
//   auto work = comm->all_gather({.shard = s, .full = f, .count = 1024, .dtype = DType::kBF16}, stream);
//
// Thread rule: any thread may call, several at a time too; destroying and moving need all of them to have returned.
// Calls take the communicator one after the other, and the order in which they take it must be the same on every rank:
// the caller sees to it, with one calling thread for each communicator, or a lock or a signal around the
// calls. Operations run in that order, also when their streams and threads differ. A call on StreamRef::caller() takes
// its place when it is entered, and runs when its turn comes; a call that makes something (windows, splits) holds the
// communicator until it returns. Ranks whose orders differ fail with kFailedPrecondition, which names the calls that
// met, if these differ in anything; labels make equal calls differ. abort, health, traffic, explain and set_timeout
// have no place in the order.
//
// Every call checks its arguments before any peer is involved; errors found later surface in Work, in health() and in
// the next call, on every rank. After a failed operation the communicator stays failed: destroy it.
#pragma once
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/options.h"
#include "shardcomm/plan.h"
#include "shardcomm/prepared.h"
#include "shardcomm/store.h"
#include "shardcomm/stream.h"
#include "shardcomm/types.h"
#include "shardcomm/window.h"

namespace shardcomm {

class Bucket;

// In all of these: n is the number of ranks; count 0 succeeds and pointers may then be null; the input is never
// written; outputs overlap inputs only where "in place" says so, any other overlap is kInvalidArgument. `label`
// (31 bytes are kept) is part of what ranks must agree on and is named when they do not. `timeout` is this rank's own
// limit of the operation, which begins to run when the operation first has to wait for a peer; zero: the
// communicator's; negative: kInvalidArgument. Ranks need not agree on it: the first that gives up fails the operation
// on all of them.

struct AllGatherArgs {
  const void* shard;  // [count]
  void* full;         // [n, count]; in place: shard == full + rank * count
  size_t count;       // elements per shard
  DType dtype;
  std::string_view label = {};
  std::chrono::milliseconds timeout = {};
};
struct ReduceScatterArgs {
  const void* full;  // [n, count]
  void* shard;       // [count]; in place: shard == full + rank * count
  size_t count;      // elements per shard
  DType dtype;
  ReduceOp op = ReduceOp::kSum;
  std::string_view label = {};
  std::chrono::milliseconds timeout = {};
  double scale = 1;  // of the result, before it is rounded (types.h)
};
struct AllReduceArgs {
  const void* in;  // [count]
  void* out;       // [count]; in place: out == in
  size_t count;
  DType dtype;
  ReduceOp op = ReduceOp::kSum;
  std::string_view label = {};
  std::chrono::milliseconds timeout = {};
  double scale = 1;  // of the result, before it is rounded (types.h)
};
struct BroadcastArgs {
  void* data;  // [count]; read on root, written on the others
  size_t count;
  DType dtype;
  Rank root = 0;
  std::string_view label = {};
  std::chrono::milliseconds timeout = {};
};
struct AllToAllArgs {
  const void* in;  // [n, count_per_rank]
  void* out;       // [n, count_per_rank]
  size_t count_per_rank;
  DType dtype;
  std::string_view label = {};
  std::chrono::milliseconds timeout = {};
};
// Rooted forms: what only the root reads or writes may be null on the other ranks.
struct GatherArgs {
  const void* shard;  // [count]
  void* full;         // [n, count], root only; in place there: shard == full + root * count
  size_t count;       // elements per shard
  DType dtype;
  Rank root = 0;
  std::string_view label = {};
  std::chrono::milliseconds timeout = {};
};
struct ScatterArgs {
  const void* full;  // [n, count], root only
  void* shard;       // [count]; in place on the root: shard == full + root * count
  size_t count;      // elements per shard
  DType dtype;
  Rank root = 0;
  std::string_view label = {};
  std::chrono::milliseconds timeout = {};
};
struct ReduceArgs {
  const void* in;  // [count]
  void* out;       // [count], root only; in place there: out == in
  size_t count;
  DType dtype;
  ReduceOp op = ReduceOp::kSum;
  Rank root = 0;
  std::string_view label = {};
  std::chrono::milliseconds timeout = {};
  double scale = 1;  // of the result, before it is rounded (types.h)
};
// Each rank passes counts of its own, zeros allowed: what it gives to rank s, in_counts[s], must be what rank s expects
// of it, otherwise the call fails with kFailedPrecondition on every rank and names one pair that differs. Never in
// place. At most about 4,000 ranks, whose counts travel in one message.
struct AllToAllVArgs {
  const void* in;                      // [sum(in_counts)]: for rank 0, then for rank 1, …, without gaps
  std::span<const size_t> in_counts;   // [n], elements
  void* out;                           // [sum(out_counts)]: from rank 0, then from rank 1, …, without gaps
  std::span<const size_t> out_counts;  // [n], elements
  DType dtype;
  std::string_view label = {};
  std::chrono::milliseconds timeout = {};
};
// Ragged forms: counts[n] is equal on every rank, zeros allowed; shards lie in rank order without gaps.
struct AllGatherVArgs {
  const void* shard;  // [counts[rank]]
  void* full;         // [sum(counts)]; in place: shard == full + sum(counts[0..rank))
  std::span<const size_t> counts;
  DType dtype;
  std::string_view label = {};
  std::chrono::milliseconds timeout = {};
};
struct ReduceScatterVArgs {
  const void* full;  // [sum(counts)]
  void* shard;       // [counts[rank]]; in place as above
  std::span<const size_t> counts;
  DType dtype;
  ReduceOp op = ReduceOp::kSum;
  std::string_view label = {};
  std::chrono::milliseconds timeout = {};
  double scale = 1;  // of the result, before it is rounded (types.h)
};
// Many tensors as one operation: one epoch, one pair of signals. Each lands in its own place; nothing is packed. A call
// that comes again and again is prepared (prepared.h), which costs less.
struct GatherItem {
  const void* shard;
  void* full;
  size_t count;  // elements per shard
  DType dtype;
};
struct ReduceItem {
  const void* full;
  void* shard;
  size_t count;
  DType dtype;
  ReduceOp op = ReduceOp::kSum;
  double scale = 1;
};
struct AllReduceItem {
  const void* in;  // [count]
  void* out;       // [count]; in place: out == in
  size_t count;
  DType dtype;
  ReduceOp op = ReduceOp::kSum;
  double scale = 1;
};
struct BroadcastItem {
  void* data;  // [count]; read on root, written on the others
  size_t count;
  DType dtype;
};

// Messages between two ranks: matched in order by pair of ranks and tag, beside the order of the collectives. dtype and
// count of both sides must be equal. A message of up to 1 KiB is buffered: its send ends without its receive. A larger
// one is read by its receiver from the sender's memory, so its send ends with its receive.
struct SendArgs {
  const void* data;  // [count]
  size_t count;
  DType dtype;
  Rank peer;
  int32_t tag = 0;  // not negative
  std::string_view label = {};
  std::chrono::milliseconds timeout = {};  // zero: the communicator's
};
struct RecvArgs {
  void* data;  // [count]
  size_t count;
  DType dtype;
  Rank peer;
  int32_t tag = 0;
  std::string_view label = {};
  std::chrono::milliseconds timeout = {};
};

// What this rank has moved, counted where it is moved.
struct TrafficCounters {
  uint64_t operations = 0;
  uint64_t bytes_sent = 0;      // payload bytes that peers took from this rank
  uint64_t bytes_received = 0;  // payload bytes that this rank took from peers
};

class SHARDCOMM_EXPORT Communicator {
 public:
  struct Group {
    Rank rank = 0;
    int size = 1;
    Device device = {};
  };
  static Result<Communicator> create(Store& store, Group self, const Options& options);  // collective
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();  // local; aborts what is still in flight, never waits for a peer

  Rank rank() const noexcept;
  int size() const noexcept;
  const Topology& topology() const noexcept;
  const Options& options() const noexcept;

  // Collective. Ranks of equal color form a communicator, ordered by (key, rank). color < 0 takes no part: nullopt.
  Result<std::optional<Communicator>> split(int color, int key);

  Result<Window> allocate_window(size_t size_bytes, std::string_view label);              // collective
  Result<Window> register_window(void* base, size_t size_bytes, std::string_view label);  // collective
  Result<MosaicWindow> allocate_mosaic(size_t shard_bytes, std::string_view label);       // collective

  // Enqueue on `stream`; on StreamRef::caller() the call returns when done.
  Result<Work> all_gather(const AllGatherArgs& args, StreamRef stream);
  Result<Work> reduce_scatter(const ReduceScatterArgs& args, StreamRef stream);
  Result<Work> all_reduce(const AllReduceArgs& args, StreamRef stream);
  Result<Work> broadcast(const BroadcastArgs& args, StreamRef stream);
  Result<Work> all_to_all(const AllToAllArgs& args, StreamRef stream);
  Result<Work> gather(const GatherArgs& args, StreamRef stream);
  Result<Work> scatter(const ScatterArgs& args, StreamRef stream);
  Result<Work> reduce(const ReduceArgs& args, StreamRef stream);
  Result<Work> all_to_all_v(const AllToAllVArgs& args, StreamRef stream);
  Result<Work> barrier(StreamRef stream, std::string_view label = {}, std::chrono::milliseconds timeout = {});
  Result<Work> all_gather_v(const AllGatherVArgs& args, StreamRef stream);
  Result<Work> reduce_scatter_v(const ReduceScatterVArgs& args, StreamRef stream);
  Result<Work> all_gather_many(std::span<const GatherItem> items, StreamRef stream, std::string_view label = {},
                               std::chrono::milliseconds timeout = {});
  Result<Work> reduce_scatter_many(std::span<const ReduceItem> items, StreamRef stream, std::string_view label = {},
                                   std::chrono::milliseconds timeout = {});
  Result<Work> all_reduce_many(std::span<const AllReduceItem> items, StreamRef stream, std::string_view label = {},
                               std::chrono::milliseconds timeout = {});
  Result<Work> broadcast_many(std::span<const BroadcastItem> items, Rank root, StreamRef stream,
                              std::string_view label = {}, std::chrono::milliseconds timeout = {});
  // Local: no peer hears of it. What the call refuses is refused here; the list of items is not needed afterwards.
  Result<PreparedCall> prepare_gather(std::span<const GatherItem> items, std::string_view label = {});
  Result<PreparedCall> prepare_reduce(std::span<const ReduceItem> items, std::string_view label = {});
  Result<Work> all_gather(Bucket& bucket, StreamRef stream);
  Result<Work> all_gather(const MosaicWindow& mosaic, StreamRef stream);  // copies nothing
  Result<Work> reduce_scatter(Bucket& bucket, ReduceOp op, StreamRef stream);

  // Messages between two ranks: from any thread, in any order with the collectives of both, which they do not hold up.
  // On a host stream they run in its order, so a send that waits for its receive holds up what follows it there.
  // Work::epoch() is 0. A peer may be this rank.
  Result<Work> send(const SendArgs& args, StreamRef stream);
  Result<Work> recv(const RecvArgs& args, StreamRef stream);
  // All of them as one operation; none waits for another, so two ranks may both send and receive here. Those with equal
  // pair and tag are matched in the order given. The longest timeout holds for all.
  Result<Work> send_recv_many(std::span<const SendArgs> sends, std::span<const RecvArgs> receives, StreamRef stream);
  // Collective over `ranks` only, which all of them name in the same order and which is their order in the new
  // communicator; the others take no part. Two of them that are made at the same time, on different threads, need
  // different labels.
  Result<Communicator> subgroup(std::span<const Rank> ranks, std::string_view label = {});

  CollectivePlan explain(const Shape& shape) const;  // what would run, and why
  TrafficCounters traffic() const noexcept;
  // The limit of later operations that bring none of their own, and of later allocations and splits; zero: options'.
  // Any thread. kInvalidArgument if negative. This rank's alone, and not inherited by what is split off.
  Status set_timeout(std::chrono::milliseconds timeout);
  Status health() const;                      // the first error any rank met; any thread
  void abort(std::string_view why) noexcept;  // any thread; returns at once; peers fail with kAborted and the reason

  struct Impl;

 private:
  friend class Bucket;

  friend class MemoryPool;
  explicit Communicator(std::unique_ptr<Impl>) noexcept;
  std::unique_ptr<Impl> impl_;
};

struct TransportReport {
  std::string name;
  Status usable;  // says why not, if not
};
SHARDCOMM_EXPORT std::vector<TransportReport> probe_transports(Device device);

}  // namespace shardcomm
