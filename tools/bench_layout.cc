#include "tools/bench_layout.h"

#include <algorithm>
#include <numeric>

namespace shardcomm::tools {
namespace {

constexpr size_t kManyItems = 16;

size_t index_of(Rank rank) { return static_cast<size_t>(rank); }

size_t sum_before(const std::vector<size_t>& counts, size_t end) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(end), size_t{0});
}

// `total` in `parts` of sizes in the proportion 1 : 2 : 3 : …, the last taking what is left over.
std::vector<size_t> uneven(size_t total, size_t parts) {
  std::vector<size_t> counts(parts);
  size_t left = total;
  const size_t weights = parts * (parts + 1) / 2;
  for (size_t i = 0; i + 1 < parts; ++i) left -= counts[i] = total / weights * (i + 1);
  counts.back() = left;
  return counts;
}

// A gather of one tensor whose shards have the sizes `counts`, into the output at `full_at`.
void add_gather(BenchLayout& layout, const BenchSpec& spec, Rank rank, const std::vector<size_t>& counts,
                size_t shard_at, size_t full_at) {
  const size_t mine = counts[index_of(rank)];
  // In the numbering of inputs, the item begins where it does in the shard; ragged shards all begin at 0.
  const size_t at = spec.in_place ? full_at + sum_before(counts, index_of(rank)) : shard_at;
  layout.inputs.push_back({at, mine, shard_at});
  layout.output_at.push_back(full_at);
  for (size_t source = 0; source < counts.size(); ++source)
    layout.outputs.push_back(
        {full_at + sum_before(counts, source), counts[source], static_cast<Rank>(source), shard_at});
}

// A reduce-scatter of one tensor that lies in the input at `full_at`.
void add_scatter(BenchLayout& layout, const BenchSpec& spec, Rank rank, const std::vector<size_t>& counts,
                 size_t shard_at, size_t full_at) {
  const size_t offset = full_at + sum_before(counts, index_of(rank));
  const size_t at = spec.in_place ? offset : shard_at;
  layout.inputs.push_back({full_at, sum_before(counts, counts.size()), full_at});
  layout.output_at.push_back(at);
  layout.outputs.push_back({at, counts[index_of(rank)], -1, offset});
}

void lay_out_shards(BenchLayout& layout, const BenchSpec& spec, Rank rank, int ranks, size_t elements) {
  const size_t n = index_of(ranks);
  const bool gathers = !reduces(spec.collective);
  const auto add = gathers ? add_gather : add_scatter;
  switch (spec.collective) {
    case Collective::kAllGatherV:
    case Collective::kReduceScatterV:
      layout.counts = uneven(std::max(elements, size_t{1}), n);
      layout.shown_count = sum_before(layout.counts, n);
      add(layout, spec, rank, layout.counts, 0, 0);
      break;
    case Collective::kAllGatherMany:
    case Collective::kReduceScatterMany: {
      layout.shown_count = std::max(elements / n, size_t{1});
      layout.counts = uneven(layout.shown_count, std::min(layout.shown_count, kManyItems));
      size_t shard_at = 0;
      for (size_t count : layout.counts) {
        add(layout, spec, rank, std::vector<size_t>(n, count), shard_at, shard_at * n);
        shard_at += count;
      }
      break;
    }
    default:
      layout.shown_count = std::max(elements / n, size_t{1});
      layout.counts = {layout.shown_count};
      add(layout, spec, rank, std::vector<size_t>(n, layout.shown_count), 0, 0);
  }
}

void lay_out_all_to_all(BenchLayout& layout, Rank rank, int ranks, size_t elements) {
  const size_t count = std::max(elements / index_of(ranks), size_t{1});
  layout.shown_count = count;
  layout.counts = {count};
  layout.inputs = {{0, count * index_of(ranks), 0}};
  layout.output_at = {0};
  for (Rank source = 0; source < ranks; ++source)
    layout.outputs.push_back({index_of(source) * count, count, source, index_of(rank) * count});
}

}  // namespace

bool reduces(Collective collective) noexcept {
  return collective == Collective::kReduceScatter || collective == Collective::kAllReduce ||
         collective == Collective::kReduceScatterV || collective == Collective::kReduceScatterMany;
}

bool allows_in_place(Collective collective) noexcept {
  return collective != Collective::kAllToAll && collective != Collective::kBarrier;
}

BenchLayout make_layout(const BenchSpec& spec, Rank rank, int ranks, size_t bytes) {
  BenchLayout layout;
  const size_t elements = bytes / size_of(spec.dtype);
  const size_t whole = std::max(elements, size_t{1});
  switch (spec.collective) {
    case Collective::kBarrier: return layout;
    case Collective::kAllReduce:
      layout.shown_count = whole;
      layout.counts = {whole};
      layout.inputs = {{0, whole, 0}};
      layout.output_at = {0};
      layout.outputs = {{0, whole, -1, 0}};
      break;
    case Collective::kBroadcast:  // from rank 0, always in place
      layout.shown_count = whole;
      layout.counts = {whole};
      layout.inputs = {{0, rank == 0 ? whole : 0, 0}};
      layout.output_at = {0};
      layout.outputs = {{0, whole, 0, 0}};
      break;
    case Collective::kAllToAll: lay_out_all_to_all(layout, rank, ranks, elements); break;
    default: lay_out_shards(layout, spec, rank, ranks, elements);
  }
  for (const InputRange& in : layout.inputs) layout.input_extent = std::max(layout.input_extent, in.at + in.count);
  for (const OutputRange& out : layout.outputs)
    layout.output_extent = std::max(layout.output_extent, out.at + out.count);
  if (spec.in_place || spec.collective == Collective::kBroadcast)
    layout.input_extent = layout.output_extent = std::max(layout.input_extent, layout.output_extent);
  switch (spec.collective) {
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kAllGatherV:
    case Collective::kReduceScatterV: layout.whole_count = layout.shown_count; break;
    default: layout.whole_count = layout.shown_count * index_of(ranks);
  }
  return layout;
}

double bus_factor(Collective collective, int ranks) noexcept {
  const double part = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case Collective::kAllReduce: return 2 * part;
    case Collective::kBroadcast: return 1;
    case Collective::kBarrier: return 0;
    default: return part;
  }
}

Status call_collective(Communicator& comm, const BenchSpec& spec, const BenchLayout& layout, std::byte* in,
                       std::byte* out) {
  const StreamRef stream = StreamRef::caller();
  const DType dtype = spec.dtype;
  const size_t width = size_of(dtype);
  if (spec.collective == Collective::kBarrier) return comm.barrier(stream).status();
  const std::byte* source = in + layout.inputs[0].at * width;
  std::byte* target = out + layout.output_at[0] * width;
  const size_t count = layout.counts[0];
  switch (spec.collective) {
    case Collective::kAllGather:
      return comm.all_gather({.shard = source, .full = target, .count = count, .dtype = dtype}, stream).status();
    case Collective::kReduceScatter:
      return comm
          .reduce_scatter({.full = source, .shard = target, .count = count, .dtype = dtype, .op = spec.op}, stream)
          .status();
    case Collective::kAllReduce:
      return comm.all_reduce({.in = source, .out = target, .count = count, .dtype = dtype, .op = spec.op}, stream)
          .status();
    case Collective::kBroadcast:
      return comm.broadcast({.data = target, .count = count, .dtype = dtype, .root = 0}, stream).status();
    case Collective::kAllToAll:
      return comm.all_to_all({.in = source, .out = target, .count_per_rank = count, .dtype = dtype}, stream).status();
    case Collective::kAllGatherV:
      return comm.all_gather_v({.shard = source, .full = target, .counts = layout.counts, .dtype = dtype}, stream)
          .status();
    case Collective::kReduceScatterV:
      return comm
          .reduce_scatter_v({.full = source, .shard = target, .counts = layout.counts, .dtype = dtype, .op = spec.op},
                            stream)
          .status();
    case Collective::kAllGatherMany: {
      GatherItem items[kManyItems];
      for (size_t i = 0; i < layout.counts.size(); ++i)
        items[i] = {in + layout.inputs[i].at * width, out + layout.output_at[i] * width, layout.counts[i], dtype};
      return comm.all_gather_many(std::span(items, layout.counts.size()), stream).status();
    }
    case Collective::kReduceScatterMany: {
      ReduceItem items[kManyItems];
      for (size_t i = 0; i < layout.counts.size(); ++i)
        items[i] = {in + layout.inputs[i].at * width, out + layout.output_at[i] * width, layout.counts[i], dtype,
                    spec.op};
      return comm.reduce_scatter_many(std::span(items, layout.counts.size()), stream).status();
    }
    case Collective::kBarrier: break;
  }
  return {};
}

}  // namespace shardcomm::tools
