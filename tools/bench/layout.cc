#include "tools/bench/layout.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace shardcomm::tools {
namespace {

constexpr std::array<std::string_view, kBenchMemoryCount> kMemoryNames = {"window", "ordinary", "mosaic", "pool"};

size_t index_of(Rank rank) { return static_cast<size_t>(rank); }

size_t sum_before(const std::vector<size_t>& counts, size_t end) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(end), size_t{0});
}

// `total` in `parts` whose sizes rise evenly until the last is `skew` times the first, or in the proportion 1 : 2 : 3 :
// … where skew is 0. The last takes what is left over.
std::vector<size_t> uneven(size_t total, size_t parts, double skew) {
  std::vector<size_t> counts(parts);
  const double last = skew > 0 ? skew : static_cast<double>(parts);
  const double step = parts > 1 ? (last - 1) / static_cast<double>(parts - 1) : 0;
  const double weights = (1 + (parts > 1 ? last : 1)) * static_cast<double>(parts) / 2;
  size_t left = total;
  for (size_t i = 0; i + 1 < parts; ++i) {
    const double share = (1 + step * static_cast<double>(i)) / weights;
    left -= counts[i] = std::min(left, static_cast<size_t>(static_cast<double>(total) * share));
  }
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

size_t whole_pages(size_t count, DType dtype) {
  const size_t page = MosaicWindow::granularity_bytes() / size_of(dtype);
  return (count + page - 1) / page * page;
}

void lay_out_shards(BenchLayout& layout, const BenchSpec& spec, Rank rank, int ranks, size_t elements) {
  const size_t n = index_of(ranks);
  const CollectiveTraits& has = traits(spec.collective);
  const auto add = has.reduces() ? add_scatter : add_gather;
  if (has.is_ragged) {
    layout.counts = uneven(std::max(elements, size_t{1}), n, spec.skew);
    layout.shown_count = sum_before(layout.counts, n);
    return add(layout, spec, rank, layout.counts, 0, 0);
  }
  layout.shown_count = std::max(elements / n, size_t{1});
  if (spec.memory == BenchMemory::kMosaic) layout.shown_count = whole_pages(layout.shown_count, spec.dtype);
  layout.counts = {layout.shown_count};
  if (has.is_many) layout.counts = uneven(layout.shown_count, std::min(layout.shown_count, spec.items), spec.skew);
  size_t shard_at = 0;
  for (size_t count : layout.counts) {
    add(layout, spec, rank, std::vector<size_t>(n, count), shard_at, shard_at * n);
    shard_at += count;
  }
}

// Every rank that takes anything takes the whole of rank `source`, or the reduction of all where that is −1.
struct Whole {
  Rank source;
  bool gives, takes;  // this rank
};
void lay_out_whole(BenchLayout& layout, const BenchSpec& spec, size_t elements, const Whole& whole) {
  layout.shown_count = std::max(elements, size_t{1});
  layout.counts = {layout.shown_count};
  if (traits(spec.collective).is_many)
    layout.counts = uneven(layout.shown_count, std::min(layout.shown_count, spec.items), spec.skew);
  size_t at = 0;
  for (const size_t count : layout.counts) {
    layout.inputs.push_back({at, whole.gives ? count : 0, at});
    layout.output_at.push_back(at);
    if (whole.takes) layout.outputs.push_back({at, count, whole.source, at});
    at += count;
  }
}

// Rank 0 takes the shards of all ranks.
void lay_out_gather_to(BenchLayout& layout, Rank rank, int ranks, size_t elements) {
  const size_t count = std::max(elements / index_of(ranks), size_t{1});
  layout.shown_count = count;
  layout.counts = {count};
  layout.inputs = {{0, count, 0}};
  layout.output_at = {0};
  for (Rank source = 0; rank == 0 && source < ranks; ++source)
    layout.outputs.push_back({index_of(source) * count, count, source, 0});
}

// Every rank takes its part of what rank 0 has.
void lay_out_scatter(BenchLayout& layout, Rank rank, int ranks, size_t elements) {
  const size_t count = std::max(elements / index_of(ranks), size_t{1});
  layout.shown_count = count;
  layout.counts = {count};
  layout.inputs = {{0, rank == 0 ? count * index_of(ranks) : 0, 0}};
  layout.output_at = {0};
  layout.outputs = {{0, count, 0, index_of(rank) * count}};
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

// What ranks r and s give each other is the share (r + s) mod n of what each gives in all, so that every rank gives and
// takes as much and both of its counts are the same.
void lay_out_all_to_all_v(BenchLayout& layout, const BenchSpec& spec, Rank rank, int ranks, size_t elements) {
  const size_t n = index_of(ranks);
  const std::vector<size_t> shares = uneven(std::max(elements, size_t{1}), n, spec.skew);
  const auto counts_of = [&](size_t r) {
    std::vector<size_t> counts;
    for (size_t s = 0; s < n; ++s) counts.push_back(shares[(r + s) % n]);
    return counts;
  };
  layout.counts = counts_of(index_of(rank));
  layout.shown_count = sum_before(layout.counts, n);
  layout.inputs = {{0, layout.shown_count, 0}};
  layout.output_at = {0};
  for (size_t source = 0; source < n; ++source) {
    layout.outputs.push_back({sum_before(layout.counts, source), layout.counts[source], static_cast<Rank>(source),
                              sum_before(counts_of(source), index_of(rank))});
  }
}

}  // namespace

std::string_view name(BenchMemory memory) noexcept { return kMemoryNames[static_cast<size_t>(memory)]; }

std::optional<BenchMemory> parse_bench_memory(std::string_view text) noexcept {
  const auto found = std::find(kMemoryNames.begin(), kMemoryNames.end(), text);
  if (found == kMemoryNames.end()) return std::nullopt;
  return static_cast<BenchMemory>(found - kMemoryNames.begin());
}

std::string_view name_of_bench(const BenchSpec& spec) noexcept {
  return spec.messages == BenchMessages::kNone ? name(spec.collective)
                                               : kBenchMessagesNames[static_cast<size_t>(spec.messages)];
}

Rank message_source(BenchMessages messages, Rank rank, int ranks) noexcept {
  if (messages == BenchMessages::kSendRecv) return (rank + ranks - 1) % ranks;
  return (rank ^ 1) < ranks ? rank ^ 1 : -1;
}

Rank message_target(BenchMessages messages, Rank rank, int ranks) noexcept {
  return messages == BenchMessages::kSendRecv ? (rank + 1) % ranks : message_source(messages, rank, ranks);
}

bool allows_in_place(Collective collective) noexcept {
  const CollectiveTraits& has = traits(collective);
  return has.has_elements && has.pattern != Pattern::kExchange && has.pattern != Pattern::kExchangeV;
}

bool is_in_place(const BenchSpec& spec) noexcept {
  return spec.in_place || traits(spec.collective).pattern == Pattern::kBroadcast;
}

bool moves_bytes(const BenchSpec& spec) noexcept {
  return traits(spec.collective).has_elements && spec.memory != BenchMemory::kMosaic;
}

BenchLayout make_layout(const BenchSpec& spec, Rank rank, int ranks, size_t bytes) {
  BenchLayout layout;
  const CollectiveTraits& has = traits(spec.collective);
  if (!has.has_elements) return layout;
  const size_t elements = bytes / size_of(spec.dtype);
  if (spec.messages != BenchMessages::kNone) {
    const Rank source = message_source(spec.messages, rank, ranks);
    lay_out_whole(layout, spec, elements, {source, source >= 0, source >= 0});
    layout.input_extent = layout.output_extent = layout.whole_count = layout.shown_count;
    return layout;
  }
  switch (has.pattern) {
    case Pattern::kReduceAll: lay_out_whole(layout, spec, elements, {-1, true, true}); break;
    case Pattern::kReduceTo: lay_out_whole(layout, spec, elements, {-1, true, rank == 0}); break;
    case Pattern::kBroadcast: lay_out_whole(layout, spec, elements, {0, rank == 0, true}); break;
    case Pattern::kGatherTo: lay_out_gather_to(layout, rank, ranks, elements); break;
    case Pattern::kScatter: lay_out_scatter(layout, rank, ranks, elements); break;
    case Pattern::kExchange: lay_out_all_to_all(layout, rank, ranks, elements); break;
    case Pattern::kExchangeV: lay_out_all_to_all_v(layout, spec, rank, ranks, elements); break;
    case Pattern::kGather:
    case Pattern::kReduce: lay_out_shards(layout, spec, rank, ranks, elements); break;
  }
  for (const InputRange& in : layout.inputs) layout.input_extent = std::max(layout.input_extent, in.at + in.count);
  for (const OutputRange& out : layout.outputs)
    layout.output_extent = std::max(layout.output_extent, out.at + out.count);
  if (is_in_place(spec))
    layout.input_extent = layout.output_extent = std::max(layout.input_extent, layout.output_extent);
  layout.whole_count = layout.shown_count * has.whole(index_of(ranks));
  return layout;
}

double bus_factor(const BenchSpec& spec, int ranks) noexcept {
  if (!moves_bytes(spec)) return 0;
  if (spec.messages != BenchMessages::kNone) return 1;
  const double part = static_cast<double>(ranks - 1) / ranks;
  switch (traits(spec.collective).pattern) {
    case Pattern::kReduceAll: return 2 * part;
    case Pattern::kReduceTo:
    case Pattern::kBroadcast: return 1;
    case Pattern::kGather:
    case Pattern::kReduce:
    case Pattern::kExchange:
    case Pattern::kGatherTo:
    case Pattern::kScatter:
    case Pattern::kExchangeV: return part;
  }
  return part;
}

}  // namespace shardcomm::tools
