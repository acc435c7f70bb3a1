// The public Communicator: creation, and one line a collective from checked arguments to an Operation.
#include "shardcomm/communicator.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/pod.h"
#include "bootstrap/bootstrap.h"
#include "core/core.h"
#include "core/window_impl.h"
#include "shardcomm/bucket.h"

namespace shardcomm {
namespace {

Item item(const void* in, void* out, size_t count, DType dtype, ReduceOp op = ReduceOp::kSum, double scale = 1) {
  return {static_cast<const std::byte*>(in), static_cast<std::byte*>(out), count, dtype, op, scale};
}

Operation make_operation(const Call& call, std::span<const Item> items, std::string_view label,
                         std::chrono::milliseconds timeout = {}) {
  Operation operation(call, items, kept_label(label));
  operation.timeout = timeout;
  return operation;
}

Result<Work> submit(Core& core, Operation&& operation, StreamRef stream) {
  SHARDCOMM_TRY(check(operation, core.self.rank, core.self.size));
  return core.submit(operation, stream);
}

Transfer transfer_of(const SendArgs& args) {
  return {.call = {.is_send = true, .dtype = args.dtype, .peer = args.peer, .tag = args.tag, .count = args.count},
          .data = const_cast<std::byte*>(static_cast<const std::byte*>(args.data)),
          .label = kept_label(args.label)};
}

Transfer transfer_of(const RecvArgs& args) {
  return {.call = {.is_send = false, .dtype = args.dtype, .peer = args.peer, .tag = args.tag, .count = args.count},
          .data = static_cast<std::byte*>(args.data),
          .label = kept_label(args.label)};
}

Status check_group(const Communicator::Group& self) {
  if (self.size < 1)
    return Status(Code::kInvalidArgument, fmt::format("a world of {} ranks: at least 1 is needed", self.size));
  if (self.rank >= 0 && self.rank < self.size) return {};
  return Status(Code::kInvalidArgument,
                fmt::format("rank {} is out of range: the group has {} ranks", self.rank, self.size));
}

// How these ranks reach what `shape` describes: ordinary memory in one way only.
SourceKind as_reached(const Fabric& fabric, const Shape& shape) {
  if (shape.memory != SourceKind::kAttached && shape.memory != SourceKind::kStaged) return shape.memory;
  if (fabric.windows->is_one_process()) return SourceKind::kMapped;
  return fabric.attaches(reduces(shape.collective)) ? SourceKind::kAttached : SourceKind::kStaged;
}

}  // namespace

Communicator::Communicator(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Communicator::Communicator(Communicator&&) noexcept = default;

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  Communicator old(std::move(*this));
  impl_ = std::move(other.impl_);
  return *this;
}

Communicator::~Communicator() {
  if (impl_ == nullptr) return;
  Core& core = *impl_->core;
  if (!core.is_idle()) {
    core.health.abort(
        Status(Code::kAborted, fmt::format("rank {} destroyed the communicator with operations in flight", rank())));
  }
  (void)core.health.failure();  // a rank that was idle has not recorded the failure yet
}

Result<Communicator> Communicator::create(Store& store, Group self, const Options& options) {
  SHARDCOMM_TRY(check_group(self));
  set_log_level(options.log_level);
  const Deadline deadline = std::chrono::steady_clock::now() + options.init_timeout;
  const auto doing = fmt::format("rank {} of {} joins its communicator", self.rank, self.size);
  if (Status joined = store.join(self.rank, self.size, options); !joined.ok()) return joined.context(doing);
  const std::string prefix = fmt::format("comm/{}/", store.next_meeting());
  const Exchange over_store = [&](std::string_view step, std::string_view blob) {
    return bootstrap::exchange(store, prefix + std::string(step), self.rank, self.size, blob, deadline);
  };
  Result<Connection> connection = connect_ranks(self, options, deadline, {.exchange = over_store});
  if (!connection.ok()) return connection.status().context(doing);
  return Communicator(
      std::make_unique<Impl>(Impl{std::make_shared<Core>(self, options, std::move(connection).value())}));
}

Result<std::optional<Communicator>> Communicator::split(int color, int key) {
  Core& core = *impl_->core;
  const auto reservation = core.reserve();
  struct Wish {
    int color, key;
  };
  const Wish mine{color, key};
  SHARDCOMM_TRY_ASSIGN(const auto wishes, core.exchange(as_bytes(mine), "split"));
  std::vector<std::pair<int, Rank>> order;  // (key, parent rank) of this color's members
  for (Rank r = 0; r < size(); ++r) {
    const Wish wish = from_bytes<Wish>(wishes[static_cast<size_t>(r)]).value_or(Wish{});
    if (wish.color == color) order.emplace_back(wish.key, r);
  }
  std::sort(order.begin(), order.end());
  // All ranks of the parent exchange as often, whatever becomes of their part, so that its operations stay in step.
  int exchanges_left = kConnectExchanges;
  const Exchange over_parent = [&](std::string_view, std::string_view blob) -> Result<std::vector<std::string>> {
    --exchanges_left;
    SHARDCOMM_TRY_ASSIGN(auto all, core.exchange(blob, "split"));
    std::vector<std::string> members;
    for (const auto& [unused, r] : order) members.push_back(std::move(all[static_cast<size_t>(r)]));
    return members;
  };
  std::optional<Result<Connection>> connection;
  Group group{0, static_cast<int>(order.size()), core.self.device};
  if (color >= 0) {
    group.rank = static_cast<Rank>(std::find(order.begin(), order.end(), std::pair(key, rank())) - order.begin());
    connection = connect_ranks(
        group, core.options, std::chrono::steady_clock::now() + core.options.init_timeout,
        {.exchange = over_parent, .job = core.flight->place().job, .most_copy_threads = core.copy_threads()});
  }
  while (exchanges_left > 0) SHARDCOMM_TRY(over_parent("", "").status());
  if (!connection) return std::optional<Communicator>();
  if (!connection->ok()) return connection->status().context("splitting a communicator");
  return std::optional<Communicator>(Communicator(
      std::make_unique<Impl>(Impl{std::make_shared<Core>(group, core.options, std::move(*connection).value())})));
}

Rank Communicator::rank() const noexcept { return impl_->core->self.rank; }
int Communicator::size() const noexcept { return impl_->core->self.size; }
const Topology& Communicator::topology() const noexcept { return impl_->core->topology; }
const Options& Communicator::options() const noexcept { return impl_->core->options; }
TrafficCounters Communicator::traffic() const noexcept { return impl_->core->traffic(); }
Status Communicator::set_timeout(std::chrono::milliseconds timeout) { return impl_->core->set_timeout(timeout); }
Status Communicator::health() const { return impl_->core->health.check(); }

void Communicator::abort(std::string_view why) noexcept {
  impl_->core->health.abort(Status(Code::kAborted, fmt::format("rank {} aborted: {}", rank(), why)));
}

Result<Work> Communicator::all_gather(const AllGatherArgs& args, StreamRef stream) {
  const Item tensor = item(args.shard, args.full, args.count, args.dtype);
  return submit(*impl_->core,
                make_operation({.collective = Collective::kAllGather}, {&tensor, 1}, args.label, args.timeout), stream);
}

Result<Work> Communicator::reduce_scatter(const ReduceScatterArgs& args, StreamRef stream) {
  const Item tensor = item(args.full, args.shard, args.count, args.dtype, args.op, args.scale);
  return submit(*impl_->core,
                make_operation({.collective = Collective::kReduceScatter}, {&tensor, 1}, args.label, args.timeout),
                stream);
}

Result<Work> Communicator::all_reduce(const AllReduceArgs& args, StreamRef stream) {
  const Item tensor = item(args.in, args.out, args.count, args.dtype, args.op, args.scale);
  return submit(*impl_->core,
                make_operation({.collective = Collective::kAllReduce}, {&tensor, 1}, args.label, args.timeout), stream);
}

Result<Work> Communicator::broadcast(const BroadcastArgs& args, StreamRef stream) {
  const Item tensor = item(args.data, args.data, args.count, args.dtype);
  const Call call{.collective = Collective::kBroadcast, .root_or_items = args.root};
  return submit(*impl_->core, make_operation(call, {&tensor, 1}, args.label, args.timeout), stream);
}

Result<Work> Communicator::all_to_all(const AllToAllArgs& args, StreamRef stream) {
  const Item tensor = item(args.in, args.out, args.count_per_rank, args.dtype);
  return submit(*impl_->core,
                make_operation({.collective = Collective::kAllToAll}, {&tensor, 1}, args.label, args.timeout), stream);
}

Result<Work> Communicator::barrier(StreamRef stream, std::string_view label, std::chrono::milliseconds timeout) {
  return submit(*impl_->core, make_operation({.collective = Collective::kBarrier}, {}, label, timeout), stream);
}

Result<Work> Communicator::all_gather_v(const AllGatherVArgs& args, StreamRef stream) {
  const Item tensor = item(args.shard, args.full, 0, args.dtype);
  Operation operation = make_operation({.collective = Collective::kAllGatherV}, {&tensor, 1}, args.label, args.timeout);
  operation.counts = args.counts;
  return submit(*impl_->core, std::move(operation), stream);
}

Result<Work> Communicator::reduce_scatter_v(const ReduceScatterVArgs& args, StreamRef stream) {
  const Item tensor = item(args.full, args.shard, 0, args.dtype, args.op, args.scale);
  Operation operation =
      make_operation({.collective = Collective::kReduceScatterV}, {&tensor, 1}, args.label, args.timeout);
  operation.counts = args.counts;
  return submit(*impl_->core, std::move(operation), stream);
}

Result<Work> Communicator::gather(const GatherArgs& args, StreamRef stream) {
  const Item tensor = item(args.shard, args.full, args.count, args.dtype);
  const Call call{.collective = Collective::kGather, .root_or_items = args.root};
  return submit(*impl_->core, make_operation(call, {&tensor, 1}, args.label, args.timeout), stream);
}

Result<Work> Communicator::scatter(const ScatterArgs& args, StreamRef stream) {
  const Item tensor = item(args.full, args.shard, args.count, args.dtype);
  const Call call{.collective = Collective::kScatter, .root_or_items = args.root};
  return submit(*impl_->core, make_operation(call, {&tensor, 1}, args.label, args.timeout), stream);
}

Result<Work> Communicator::reduce(const ReduceArgs& args, StreamRef stream) {
  const Item tensor = item(args.in, args.out, args.count, args.dtype, args.op, args.scale);
  const Call call{.collective = Collective::kReduce, .root_or_items = args.root};
  return submit(*impl_->core, make_operation(call, {&tensor, 1}, args.label, args.timeout), stream);
}

Result<Work> Communicator::all_to_all_v(const AllToAllVArgs& args, StreamRef stream) {
  const Item tensor = item(args.in, args.out, 0, args.dtype);
  Operation operation = make_operation({.collective = Collective::kAllToAllV}, {&tensor, 1}, args.label, args.timeout);
  operation.counts = args.in_counts;
  operation.out_counts = args.out_counts;
  return submit(*impl_->core, std::move(operation), stream);
}

Result<Work> Communicator::all_gather_many(std::span<const GatherItem> items, StreamRef stream, std::string_view label,
                                           std::chrono::milliseconds timeout) {
  return impl_->core->submit_many(Collective::kAllGatherMany, items, stream, label, timeout);
}

Result<Work> Communicator::reduce_scatter_many(std::span<const ReduceItem> items, StreamRef stream,
                                               std::string_view label, std::chrono::milliseconds timeout) {
  return impl_->core->submit_many(Collective::kReduceScatterMany, items, stream, label, timeout);
}

Result<Work> Communicator::all_reduce_many(std::span<const AllReduceItem> items, StreamRef stream,
                                           std::string_view label, std::chrono::milliseconds timeout) {
  std::vector<Item> tensors;
  tensors.reserve(items.size());
  for (const AllReduceItem& given : items)
    tensors.push_back(item(given.in, given.out, given.count, given.dtype, given.op, given.scale));
  return submit(*impl_->core, make_operation({.collective = Collective::kAllReduceMany}, tensors, label, timeout),
                stream);
}

Result<Work> Communicator::broadcast_many(std::span<const BroadcastItem> items, Rank root, StreamRef stream,
                                          std::string_view label, std::chrono::milliseconds timeout) {
  SHARDCOMM_TRY(check_root_of_many(root, size()));
  std::vector<Item> tensors;
  tensors.reserve(items.size());
  for (const BroadcastItem& given : items) tensors.push_back(item(given.data, given.data, given.count, given.dtype));
  Call call{.collective = Collective::kBroadcastMany};
  set_root(call, root);
  return submit(*impl_->core, make_operation(call, tensors, label, timeout), stream);
}

Result<Work> Communicator::send(const SendArgs& args, StreamRef stream) {
  const Transfer transfer = transfer_of(args);
  return impl_->core->submit({&transfer, 1}, stream, args.timeout);
}

Result<Work> Communicator::recv(const RecvArgs& args, StreamRef stream) {
  const Transfer transfer = transfer_of(args);
  return impl_->core->submit({&transfer, 1}, stream, args.timeout);
}

Result<Work> Communicator::send_recv_many(std::span<const SendArgs> sends, std::span<const RecvArgs> receives,
                                          StreamRef stream) {
  std::vector<Transfer> transfers;
  transfers.reserve(sends.size() + receives.size());
  std::chrono::milliseconds timeout{};
  const auto add = [&](const auto& args) -> Status {
    transfers.push_back(transfer_of(args));
    std::chrono::milliseconds own = args.timeout;
    SHARDCOMM_TRY(impl_->core->resolve(own));
    timeout = std::max(timeout, own);
    return {};
  };
  for (const SendArgs& args : sends) SHARDCOMM_TRY(add(args));
  for (const RecvArgs& args : receives) SHARDCOMM_TRY(add(args));
  return impl_->core->submit(transfers, stream, timeout);
}

CollectivePlan Communicator::explain(const Shape& shape) const {
  const Core& core = *impl_->core;
  const Item tensor{nullptr, nullptr, shape.count, shape.dtype, ReduceOp::kSum};
  const std::vector<size_t> counts(static_cast<size_t>(size()), shape.count);  // ragged forms: as if all were equal
  const CollectiveTraits& has = traits(shape.collective);
  Operation operation =
      make_operation({.collective = shape.collective}, {&tensor, has.has_elements ? size_t{1} : 0}, {});
  if (has.is_ragged || has.has_own_counts()) operation.counts = counts;
  if (has.has_own_counts()) operation.out_counts = counts;
  prepare(operation, size());
  operation.workload.memory = as_reached(*core.fabric, shape);
  CollectivePlan plan = core.chooser.explain(operation.workload);
  plan.transport = core.fabric->transport->name();
  plan.chunk_bytes = core.options.chunk_bytes;
  return plan;
}

std::vector<TransportReport> probe_transports(Device device) {
  std::vector<TransportReport> reports;
  for (const TransportEntry& entry : transports()) reports.push_back({std::string(entry.name), entry.probe(device)});
  return reports;
}

}  // namespace shardcomm
