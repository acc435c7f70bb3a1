#include "tests/support/collectives_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "tests/support/collectives_table_text.h"

namespace shardcomm::testing {
namespace {

using namespace std::chrono_literals;

// Of one message; beyond it the bytes are read where they lie. See src/transport/control_block.h: tests keep a number
// of their own, so that they stay on both sides of it even if it moves a little.
constexpr size_t kInlineBytes = (64 << 10) - 48;
constexpr int kMostReports = 8;  // of one table and rank

}  // namespace

std::byte* Arena::place(size_t bytes, size_t offset_bytes) {
  const size_t begin = (used_ + kGuardBytes + 63) / 64 * 64 + offset_bytes;
  if (begin + bytes + kGuardBytes > bytes_) throw std::runtime_error("the arena of a test is too small");
  std::memset(base_ + begin - kGuardBytes, static_cast<int>(kPoison), bytes + 2 * kGuardBytes);
  used_ = begin + bytes + kGuardBytes;
  return base_ + begin;
}

bool Arena::guarded(const std::byte* buffer, size_t bytes) noexcept {
  const auto is_poison = [](std::byte b) { return b == kPoison; };
  return std::all_of(buffer - kGuardBytes, buffer, is_poison) &&
         std::all_of(buffer + bytes, buffer + bytes + kGuardBytes, is_poison);
}

Reference make_reference(uint64_t seed, int ranks, size_t largest) {
  const size_t wide = static_cast<size_t>(ranks) * 16;  // rounding up to a count for each rank
  return Reference(seed, ranks, static_cast<size_t>(ranks) * largest + wide + CollectiveTable::kShift,
                   2 * kInlineBytes + (wide + 64 + CollectiveTable::kShift) * 16);
}

CollectiveTable::CollectiveTable(Communicator& comm, const Memory& memory, const Reference& reference,
                                 const TableSpan& span)
    : comm_(comm), reference_(reference), span_(span), memory_name_(memory.name) {
  if (span_.dtypes.empty()) {
    for (int d = 0; d < kDTypeCount; ++d) span_.dtypes.push_back(static_cast<DType>(d));
  }
  // A flush holds all counts of one call, in place and not: in and out of up to one shard a rank each; or two calls of
  // many items.
  const auto ranks = static_cast<size_t>(comm.size());
  const size_t largest =
      *std::max_element(span_.counts.begin(), span_.counts.end()) * size_of(DType::kComplex128) + 256;
  size_t bytes = 2 * (ranks + 1) * span_.most_items * largest + (1 << 20);
  for (DType dtype : {DType::kU8, DType::kComplex128}) {
    size_t each = 0;
    for (size_t count : counts_for(dtype, 1)) each += count * size_of(dtype) + 256;
    bytes = std::max(bytes, 5 * each * ranks + (1 << 20));
  }
  std::byte* base = nullptr;
  if (memory.window_is_pool) {
    pool_ = MemoryPool::create(comm, {.initial_bytes = 4096, .label = "arena"}).value();
    for (Rank r = 0; r < comm.rank(); ++r) (void)pool_->take(1000 * (1 + static_cast<size_t>(r))).value();
    base = pool_->take(bytes).value();
  } else if (memory.even_ranks_use_window || memory.odd_ranks_use_window) {
    Result<Window> window = comm.allocate_window(bytes, "arena");
    if (!window.ok()) throw std::runtime_error(window.status().to_string());
    window_ = std::move(window).value();
    base = window_->data();
  }
  if (!(comm.rank() % 2 == 0 ? memory.even_ranks_use_window : memory.odd_ranks_use_window)) {
    heap_.resize(bytes);
    base = heap_.data();
  }
  arena_.emplace(base, bytes);
}

// Of the parts of a buffer, those for the peers.
size_t CollectiveTable::shown_parts() const { return std::max<size_t>(static_cast<size_t>(comm_.size()) - 1, 1); }

// `shards`: how many counts of elements a rank announces, for the limit of a message.
std::vector<size_t> CollectiveTable::counts_for(DType dtype, size_t shards) const {
  std::vector<size_t> counts = span_.counts;
  if (!span_.beyond_inline) return counts;
  const size_t limit = kInlineBytes / size_of(dtype) / shards;
  counts.insert(counts.end(), {limit, limit + 1, limit + 13});
  return counts;
}

// Zeros, one huge rank, all different, nothing at all.
std::vector<std::vector<size_t>> CollectiveTable::ragged_counts(DType dtype) const {
  const auto n = static_cast<size_t>(comm_.size());
  std::vector<std::vector<size_t>> all;
  all.emplace_back(n, 0);
  for (size_t largest : counts_for(dtype, 1)) {
    std::vector<size_t> alternate(n, 0), one_huge(n, 1), different(n, 0);
    for (size_t r = 0; r < n; ++r) {
      alternate[r] = r % 2 == largest % 2 ? largest / n : 0;
      different[r] = largest / (n + r) + r;
    }
    one_huge[turn_ % n] = largest;
    if (n > 2) one_huge[(turn_ + 1) % n] = 0;
    all.insert(all.end(), {alternate, one_huge, different});
  }
  return all;
}

std::byte* CollectiveTable::output(Pending& pending, size_t count, DType dtype) {
  const size_t size = size_of(dtype), bytes = count * size;
  const size_t offset = (turn_ + 3 * static_cast<size_t>(comm_.rank())) % span_.offsets;  // another on every rank
  std::byte* buffer = arena_->place(bytes, offset * size);
  pending.guarded.push_back({buffer, nullptr, bytes});
  return buffer;
}

std::byte* CollectiveTable::input(Pending& pending, const std::byte* elements, size_t count, DType dtype) {
  ++turn_;
  std::byte* buffer = output(pending, count, dtype);
  if (count != 0) std::memcpy(buffer, elements, count * size_of(dtype));
  pending.unchanged.push_back({buffer, elements, count * size_of(dtype)});
  return buffer;
}

void CollectiveTable::issue(Pending pending, Result<Work> work) {
  if (!work.ok()) throw std::runtime_error(pending.what + ": " + work.status().to_string());
  pending.work = *work;
  pending_.push_back(std::move(pending));
}

void CollectiveTable::flush() {
  for (const Pending& pending : pending_) {
    const Status status = pending.work.synchronize(std::chrono::steady_clock::now() + 30s);
    if (!status.ok()) throw std::runtime_error(pending.what + ": " + status.to_string());
    if (!pending.work.done()) report(pending.what + ": not done after synchronize");
  }
  for (const Pending& pending : pending_) check(pending);
  pending_.clear();
  arena_->reset();
}

void CollectiveTable::check(const Pending& pending) {
  for (const Output& o : pending.outputs) {
    const auto at = first_difference(o.got, o.expected, o.count, o.dtype);
    if (!at) continue;
    report(pending.what + ": element " + std::to_string(*at) + " is " + element_text(o.got, *at, o.dtype) +
           ", expected " + element_text(o.expected, *at, o.dtype));
  }
  for (const Input& in : pending.unchanged) {
    if (in.bytes != 0 && std::memcmp(in.got, in.expected, in.bytes) != 0) report(pending.what + ": changed its input");
  }
  for (const Input& buffer : pending.guarded) {
    if (!Arena::guarded(buffer.got, buffer.bytes)) report(pending.what + ": wrote beyond a buffer");
  }
}

void CollectiveTable::report(const std::string& text) {
  if (++reports_ <= kMostReports)
    ADD_FAILURE() << text << "; memory " << memory_name_ << ", seed " << reference_.seed();
}

void CollectiveTable::run(StreamRef stream) {
  stream_ = stream;
  for (DType dtype : span_.dtypes) {
    for (size_t count : counts_for(dtype, 1)) {
      for (bool in_place : {false, true}) all_gather(dtype, count, in_place);
    }
    flush();
    for (size_t count : counts_for(dtype, shown_parts())) all_to_all(dtype, count);
    flush();
    for (Rank root = 0; root < comm_.size(); ++root) {
      for (size_t count : counts_for(dtype, 1)) broadcast(dtype, count, root);
      flush();
    }
    run_reductions(dtype);
    run_ragged(dtype);
    run_rooted(dtype);
    run_pairs(dtype);
    barrier();
  }
  for (size_t items : {size_t{0}, size_t{1}, size_t{7}, span_.most_items}) {
    for (bool in_place : {false, true}) {
      all_gather_many(items, turn_, in_place);
      reduce_scatter_many(items, turn_, in_place);
      flush();
      all_reduce_many(items, turn_, in_place);
      broadcast_many(items, turn_);
      flush();
    }
  }
  for (DType dtype : {DType::kBF16, DType::kF32, DType::kU8}) buckets(dtype, span_.counts.back());
}

void CollectiveTable::run_reductions(DType dtype) {
  for (ReduceOp op : ops_of(dtype)) {
    for (size_t count : counts_for(dtype, shown_parts())) {
      for (bool in_place : {false, true}) reduce_scatter(dtype, op, count, in_place);
    }
    flush();
    for (size_t count : counts_for(dtype, 1)) {
      for (bool in_place : {false, true}) all_reduce(dtype, op, count, in_place);
    }
    flush();
  }
}

void CollectiveTable::run_ragged(DType dtype) {
  const std::vector<ReduceOp> ops = ops_of(dtype);
  for (const std::vector<size_t>& counts : ragged_counts(dtype)) {
    for (bool in_place : {false, true}) {
      all_gather_v(dtype, counts, in_place);
      reduce_scatter_v(dtype, ops[turn_ % ops.size()], counts, in_place);
    }
    flush();
  }
}

void CollectiveTable::run_refusals(StreamRef stream) {
  stream_ = stream;
  alignas(8) std::byte in[64] = {}, out[64] = {};
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    if (supports(dtype, ReduceOp::kAverage)) continue;
    // Only one rank calls: no peer is involved.
    if (comm_.rank() != static_cast<Rank>(d) % comm_.size()) continue;
    const std::vector<size_t> counts(static_cast<size_t>(comm_.size()), 1);
    const ReduceItem items[] = {{in, out, 1, DType::kF32, ReduceOp::kAverage}, {in, out, 1, dtype, ReduceOp::kAverage}};
    const auto refused = [&](const Result<Work>& result, const char* call) {
      if (result.status().code() == Code::kUnsupported) return;
      report(std::string(call) + " average of " + std::string(name(dtype)) + ": " + result.status().to_string());
    };
    refused(comm_.reduce_scatter({in, out, 1, dtype, ReduceOp::kAverage}, stream), "reduce_scatter");
    refused(comm_.all_reduce({in, out, 1, dtype, ReduceOp::kAverage}, stream), "all_reduce");
    refused(comm_.reduce_scatter_v({in, out, counts, dtype, ReduceOp::kAverage}, stream), "reduce_scatter_v");
    refused(comm_.reduce_scatter_many(items, stream), "reduce_scatter_many");
    refused(comm_.reduce({.in = in, .out = out, .count = 1, .dtype = dtype, .op = ReduceOp::kAverage}, stream),
            "reduce");
    const AllReduceItem whole_items[] = {
        {.in = in, .out = out, .count = 1, .dtype = DType::kF32, .op = ReduceOp::kAverage},
        {.in = in, .out = out, .count = 1, .dtype = dtype, .op = ReduceOp::kAverage}};
    refused(comm_.all_reduce_many(whole_items, stream), "all_reduce_many");
  }
  barrier();
}

void CollectiveTable::barrier() {
  Pending pending{"barrier", {}, {}, {}, {}};
  issue(std::move(pending), comm_.barrier(stream_));
  flush();
}

void CollectiveTable::all_gather(DType dtype, size_t count, bool in_place) {
  Pending pending{call_text("all_gather", dtype, count, in_place), {}, {}, {}, {}};
  const size_t first = next_first(), bytes = count * size_of(dtype);
  const auto n = static_cast<size_t>(comm_.size());
  const std::byte* mine = reference_.input(dtype, comm_.rank(), first);
  std::byte* full = output(pending, n * count, dtype);
  std::byte* shard = full + static_cast<size_t>(comm_.rank()) * bytes;
  if (in_place) {
    if (bytes != 0) std::memcpy(shard, mine, bytes);
  } else {
    shard = input(pending, mine, count, dtype);
  }
  for (size_t r = 0; r < n; ++r)
    pending.outputs.push_back({full + r * bytes, reference_.input(dtype, static_cast<Rank>(r), first), count, dtype});
  issue(std::move(pending), comm_.all_gather({shard, full, count, dtype}, stream_));
}

void CollectiveTable::reduce_scatter(DType dtype, ReduceOp op, size_t count, bool in_place) {
  Pending pending{call_text("reduce_scatter " + std::string(name(op)), dtype, count, in_place), {}, {}, {}, {}};
  const auto n = static_cast<size_t>(comm_.size()), me = static_cast<size_t>(comm_.rank());
  const size_t first = next_first(), bytes = count * size_of(dtype);
  const std::byte* mine = reference_.input(dtype, comm_.rank(), first);
  std::byte* full = input(pending, mine, n * count, dtype);
  std::byte* shard = full + me * bytes;
  if (in_place) {
    pending.unchanged = {{full, mine, me * bytes}, {shard + bytes, mine + (me + 1) * bytes, (n - 1 - me) * bytes}};
  } else {
    shard = output(pending, count, dtype);
  }
  pending.outputs.push_back({shard, reference_.reduced(dtype, op, first + me * count), count, dtype});
  issue(std::move(pending), comm_.reduce_scatter({full, shard, count, dtype, op}, stream_));
}

void CollectiveTable::all_reduce(DType dtype, ReduceOp op, size_t count, bool in_place) {
  Pending pending{call_text("all_reduce " + std::string(name(op)), dtype, count, in_place), {}, {}, {}, {}};
  const size_t first = next_first();
  std::byte* in = input(pending, reference_.input(dtype, comm_.rank(), first), count, dtype);
  std::byte* out = in_place ? in : output(pending, count, dtype);
  if (in_place) pending.unchanged.clear();
  pending.outputs.push_back({out, reference_.reduced(dtype, op, first), count, dtype});
  issue(std::move(pending), comm_.all_reduce({in, out, count, dtype, op}, stream_));
}

void CollectiveTable::broadcast(DType dtype, size_t count, Rank root) {
  Pending pending{call_text("broadcast from " + std::to_string(root), dtype, count, false), {}, {}, {}, {}};
  const std::byte* expected = reference_.input(dtype, root, next_first());
  std::byte* data = comm_.rank() == root ? input(pending, expected, count, dtype) : output(pending, count, dtype);
  pending.outputs.push_back({data, expected, count, dtype});
  if (comm_.rank() != root) ++turn_;  // as input() does on the root
  issue(std::move(pending), comm_.broadcast({data, count, dtype, root}, stream_));
}

void CollectiveTable::all_to_all(DType dtype, size_t count) {
  Pending pending{call_text("all_to_all", dtype, count, false), {}, {}, {}, {}};
  const auto n = static_cast<size_t>(comm_.size()), me = static_cast<size_t>(comm_.rank());
  const size_t first = next_first(), bytes = count * size_of(dtype);
  std::byte* in = input(pending, reference_.input(dtype, comm_.rank(), first), n * count, dtype);
  std::byte* out = output(pending, n * count, dtype);
  for (size_t r = 0; r < n; ++r) {
    const std::byte* part = reference_.input(dtype, static_cast<Rank>(r), first + me * count);
    pending.outputs.push_back({out + r * bytes, part, count, dtype});
  }
  issue(std::move(pending), comm_.all_to_all({in, out, count, dtype}, stream_));
}

void CollectiveTable::all_gather_v(DType dtype, const std::vector<size_t>& counts, bool in_place) {
  const auto me = static_cast<size_t>(comm_.rank());
  Pending pending{call_text("all_gather_v", dtype, counts[me], in_place), {}, {}, {}, {}};
  const size_t first = next_first(), size = size_of(dtype);
  const std::byte* mine = reference_.input(dtype, comm_.rank(), first);
  std::byte* full = output(pending, sum_of(counts, counts.size()), dtype);
  std::byte* shard = full + sum_of(counts, me) * size;
  if (in_place) {
    if (counts[me] != 0) std::memcpy(shard, mine, counts[me] * size);
  } else {
    shard = input(pending, mine, counts[me], dtype);
  }
  for (size_t r = 0; r < counts.size(); ++r) {
    const std::byte* part = reference_.input(dtype, static_cast<Rank>(r), first);
    pending.outputs.push_back({full + sum_of(counts, r) * size, part, counts[r], dtype});
  }
  // Whatever an operation in flight needs of the caller's arrays, it has taken before the call returns.
  std::vector<size_t> passing(counts);
  issue(std::move(pending), comm_.all_gather_v({shard, full, passing, dtype}, stream_));
  std::fill(passing.begin(), passing.end(), size_t{1} << 60);
}

void CollectiveTable::reduce_scatter_v(DType dtype, ReduceOp op, const std::vector<size_t>& counts, bool in_place) {
  const auto me = static_cast<size_t>(comm_.rank());
  Pending pending{call_text("reduce_scatter_v " + std::string(name(op)), dtype, counts[me], in_place), {}, {}, {}, {}};
  const size_t first = next_first(), size = size_of(dtype);
  const size_t before = sum_of(counts, me), whole = sum_of(counts, counts.size());
  const std::byte* mine = reference_.input(dtype, comm_.rank(), first);
  std::byte* full = input(pending, mine, whole, dtype);
  std::byte* shard = full + before * size;
  if (in_place) {
    const size_t end = before + counts[me];
    pending.unchanged = {{full, mine, before * size}, {full + end * size, mine + end * size, (whole - end) * size}};
  } else {
    shard = output(pending, counts[me], dtype);
  }
  pending.outputs.push_back({shard, reference_.reduced(dtype, op, first + before), counts[me], dtype});
  std::vector<size_t> passing(counts);
  issue(std::move(pending), comm_.reduce_scatter_v({full, shard, passing, dtype, op}, stream_));
  std::fill(passing.begin(), passing.end(), size_t{1} << 60);
}

void CollectiveTable::all_gather_many(size_t items, size_t first_dtype, bool in_place) {
  Pending pending{"all_gather_many of " + std::to_string(items) + (in_place ? " in place" : ""), {}, {}, {}, {}};
  const auto n = static_cast<size_t>(comm_.size()), me = static_cast<size_t>(comm_.rank());
  std::vector<GatherItem> given;
  for (size_t i = 0; i < items; ++i) {
    const auto dtype = static_cast<DType>((first_dtype + i * 5) % kDTypeCount);
    const size_t count = span_.counts[(first_dtype + i) % span_.counts.size()], bytes = count * size_of(dtype);
    const size_t first = next_first();
    std::byte* full = output(pending, n * count, dtype);
    std::byte* shard = full + me * bytes;
    const std::byte* mine = reference_.input(dtype, comm_.rank(), first);
    if (in_place && bytes != 0) std::memcpy(shard, mine, bytes);
    if (!in_place) shard = input(pending, mine, count, dtype);
    for (size_t r = 0; r < n; ++r)
      pending.outputs.push_back({full + r * bytes, reference_.input(dtype, static_cast<Rank>(r), first), count, dtype});
    given.push_back({shard, full, count, dtype});
  }
  issue(std::move(pending), comm_.all_gather_many(given, stream_, "many tensors"));
  given.assign(given.size(), {});
}

void CollectiveTable::reduce_scatter_many(size_t items, size_t first_dtype, bool in_place) {
  Pending pending{"reduce_scatter_many of " + std::to_string(items) + (in_place ? " in place" : ""), {}, {}, {}, {}};
  const auto n = static_cast<size_t>(comm_.size()), me = static_cast<size_t>(comm_.rank());
  std::vector<ReduceItem> given;
  for (size_t i = 0; i < items; ++i) {
    const auto dtype = static_cast<DType>((first_dtype + i * 7) % kDTypeCount);
    const std::vector<ReduceOp> ops = ops_of(dtype);
    const ReduceOp op = ops[i % ops.size()];
    const size_t count = span_.counts[(first_dtype + i) % span_.counts.size()], bytes = count * size_of(dtype);
    const size_t first = next_first();
    const std::byte* mine = reference_.input(dtype, comm_.rank(), first);
    std::byte* full = input(pending, mine, n * count, dtype);
    std::byte* shard = full + me * bytes;
    if (in_place) {
      pending.unchanged.back() = {full, mine, me * bytes};
      pending.unchanged.push_back({shard + bytes, mine + (me + 1) * bytes, (n - 1 - me) * bytes});
    } else {
      shard = output(pending, count, dtype);
    }
    pending.outputs.push_back({shard, reference_.reduced(dtype, op, first + me * count), count, dtype});
    given.push_back({full, shard, count, dtype, op});
  }
  issue(std::move(pending), comm_.reduce_scatter_many(given, stream_, "many tensors"));
  given.assign(given.size(), {});
}

void CollectiveTable::buckets(DType dtype, size_t count) {
  const auto n = static_cast<size_t>(comm_.size()), me = static_cast<size_t>(comm_.rank());
  Result<Bucket> bucket = Bucket::create(comm_, {dtype, count, n * count}, "bucket");
  if (!bucket.ok()) throw std::runtime_error(bucket.status().to_string());
  const size_t first = next_first(), bytes = count * size_of(dtype);
  if (bucket->shard() != bucket->full() + me * bytes) report("bucket: its shard is not this rank's part of it");
  Pending gathered{call_text("all_gather of a bucket", dtype, count, true), {}, {}, {}, {}};
  std::memcpy(bucket->shard(), reference_.input(dtype, comm_.rank(), first), bytes);
  for (size_t r = 0; r < n; ++r) {
    const std::byte* part = reference_.input(dtype, static_cast<Rank>(r), first);
    gathered.outputs.push_back({bucket->full() + r * bytes, part, count, dtype});
  }
  issue(std::move(gathered), comm_.all_gather(*bucket, stream_));
  flush();
  Pending reduced{call_text("reduce_scatter of a bucket", dtype, count, true), {}, {}, {}, {}};
  std::memcpy(bucket->full(), reference_.input(dtype, comm_.rank(), first), n * bytes);
  reduced.outputs.push_back(
      {bucket->shard(), reference_.reduced(dtype, ReduceOp::kSum, first + me * count), count, dtype});
  issue(std::move(reduced), comm_.reduce_scatter(*bucket, ReduceOp::kSum, stream_));
  flush();
}

}  // namespace shardcomm::testing
