#include "tools/bench/call.h"

namespace shardcomm::tools {

BenchCall::BenchCall(Communicator& comm, const BenchSpec& spec, const BenchLayout& layout)
    : comm_(comm), spec_(spec), layout_(layout) {}

Status BenchCall::place(const std::byte* in, std::byte* out) {
  const CollectiveTraits& has = traits(spec_.collective);
  if (!has.has_elements) return {};
  const size_t width = size_of(spec_.dtype);
  in_ = in + layout_.inputs[0].at * width;
  out_ = out + layout_.output_at[0] * width;
  gathers_.clear();
  reductions_.clear();
  all_reductions_.clear();
  broadcasts_.clear();
  for (size_t i = 0; has.is_many && i < layout_.inputs.size(); ++i) {
    const std::byte* source = in + layout_.inputs[i].at * width;
    std::byte* target = out + layout_.output_at[i] * width;
    const size_t count = layout_.counts[i];
    if (has.pattern == Pattern::kGather) gathers_.push_back({source, target, count, spec_.dtype});
    if (has.pattern == Pattern::kReduce) reductions_.push_back({source, target, count, spec_.dtype, spec_.op});
    if (has.pattern == Pattern::kReduceAll) all_reductions_.push_back({source, target, count, spec_.dtype, spec_.op});
    if (has.pattern == Pattern::kBroadcast) broadcasts_.push_back({target, count, spec_.dtype});
  }
  return gathers_.empty() && reductions_.empty() ? Status() : prepare();
}

Status BenchCall::prepare() {
  SHARDCOMM_TRY_ASSIGN(prepared_,
                       gathers_.empty() ? comm_.prepare_reduce(reductions_) : comm_.prepare_gather(gathers_));
  return {};
}

// The tensors lie one behind the other, and so do their wholes.
Status BenchCall::as_one() const {
  size_t count = 0;
  for (const size_t of_tensor : layout_.counts) count += of_tensor;
  const size_t bytes = count * size_of(spec_.dtype), offset = static_cast<size_t>(comm_.rank()) * bytes;
  const DType dtype = spec_.dtype;
  const StreamRef stream = StreamRef::caller();
  if (gathers_.empty()) {
    std::byte* const shard = spec_.in_place ? const_cast<std::byte*>(in_) + offset : out_;
    return comm_.reduce_scatter({.full = in_, .shard = shard, .count = count, .dtype = dtype, .op = spec_.op}, stream)
        .status();
  }
  const std::byte* const shard = spec_.in_place ? out_ + offset : in_;
  return comm_.all_gather({.shard = shard, .full = out_, .count = count, .dtype = dtype}, stream).status();
}

void BenchCall::place(const MosaicWindow& mosaic) { mosaic_ = &mosaic; }

Status BenchCall::exchange_messages() const {
  const StreamRef stream = StreamRef::caller();
  const Rank rank = comm_.rank();
  const Rank source = message_source(spec_.messages, rank, comm_.size());
  if (source < 0) return {};
  const size_t count = layout_.counts[0];
  const SendArgs send{
      .data = in_, .count = count, .dtype = spec_.dtype, .peer = message_target(spec_.messages, rank, comm_.size())};
  const RecvArgs receive{.data = out_, .count = count, .dtype = spec_.dtype, .peer = source};
  if (spec_.messages == BenchMessages::kSendRecv)
    return comm_.send_recv_many({&send, 1}, {&receive, 1}, stream).status();
  const bool begins = rank % 2 == 0;
  SHARDCOMM_TRY((begins ? comm_.send(send, stream) : comm_.recv(receive, stream)).status());
  return (begins ? comm_.recv(receive, stream) : comm_.send(send, stream)).status();
}

Status BenchCall::operator()() const { return prepared_ ? prepared_->run(StreamRef::caller()).status() : plain(); }

Status BenchCall::plain() const {
  if (spec_.messages != BenchMessages::kNone) return exchange_messages();
  const StreamRef stream = StreamRef::caller();
  if (mosaic_ != nullptr) return comm_.all_gather(*mosaic_, stream).status();
  const DType dtype = spec_.dtype;
  const ReduceOp op = spec_.op;
  const std::vector<size_t>& counts = layout_.counts;
  switch (spec_.collective) {
    case Collective::kBarrier: return comm_.barrier(stream).status();
    case Collective::kAllGather:
      return comm_.all_gather({.shard = in_, .full = out_, .count = counts[0], .dtype = dtype}, stream).status();
    case Collective::kReduceScatter:
      return comm_.reduce_scatter({.full = in_, .shard = out_, .count = counts[0], .dtype = dtype, .op = op}, stream)
          .status();
    case Collective::kAllReduce:
      return comm_.all_reduce({.in = in_, .out = out_, .count = counts[0], .dtype = dtype, .op = op}, stream).status();
    case Collective::kBroadcast:
      return comm_.broadcast({.data = out_, .count = counts[0], .dtype = dtype, .root = 0}, stream).status();
    case Collective::kAllToAll:
      return comm_.all_to_all({.in = in_, .out = out_, .count_per_rank = counts[0], .dtype = dtype}, stream).status();
    case Collective::kAllGatherV:
      return comm_.all_gather_v({.shard = in_, .full = out_, .counts = counts, .dtype = dtype}, stream).status();
    case Collective::kReduceScatterV:
      return comm_.reduce_scatter_v({.full = in_, .shard = out_, .counts = counts, .dtype = dtype, .op = op}, stream)
          .status();
    case Collective::kAllGatherMany: return comm_.all_gather_many(gathers_, stream).status();
    case Collective::kReduceScatterMany: return comm_.reduce_scatter_many(reductions_, stream).status();
    case Collective::kGather:
      return comm_.gather({.shard = in_, .full = out_, .count = counts[0], .dtype = dtype}, stream).status();
    case Collective::kScatter:
      return comm_.scatter({.full = in_, .shard = out_, .count = counts[0], .dtype = dtype}, stream).status();
    case Collective::kReduce:
      return comm_.reduce({.in = in_, .out = out_, .count = counts[0], .dtype = dtype, .op = op}, stream).status();
    case Collective::kAllToAllV:
      return comm_
          .all_to_all_v({.in = in_, .in_counts = counts, .out = out_, .out_counts = counts, .dtype = dtype}, stream)
          .status();
    case Collective::kAllReduceMany: return comm_.all_reduce_many(all_reductions_, stream).status();
    case Collective::kBroadcastMany: return comm_.broadcast_many(broadcasts_, 0, stream).status();
  }
  return {};
}

}  // namespace shardcomm::tools
