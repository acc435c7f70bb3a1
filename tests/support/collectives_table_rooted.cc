// The part of the table whose calls have a root, counts of each rank's own, or many tensors of one of these.
#include <algorithm>
#include <cstring>

#include "tests/support/collectives_table.h"
#include "tests/support/collectives_table_text.h"

namespace shardcomm::testing {

// Two ranks for each dtype; over all dtypes every rank of up to twelve.
std::vector<Rank> CollectiveTable::roots_of(DType dtype) const {
  const int n = comm_.size(), first = static_cast<int>(dtype) % n, second = (first + n / 2) % n;
  return first == second ? std::vector<Rank>{first} : std::vector<Rank>{first, second};
}

void CollectiveTable::run_rooted(DType dtype) {
  for (const Rank root : roots_of(dtype)) {
    for (const bool in_place : {false, true}) {
      for (const size_t count : counts_for(dtype, 1)) gather(dtype, count, root, in_place);
      flush();
      for (const size_t count : counts_for(dtype, shown_parts())) scatter(dtype, count, root, in_place);
      flush();
    }
    for (const ReduceOp op : ops_of(dtype)) {
      for (const size_t count : counts_for(dtype, 1)) {
        for (const bool in_place : {false, true}) reduce(dtype, op, count, root, in_place);
      }
      flush();
    }
  }
}

// What a rank that is not the root passes for what only the root writes: nothing, or a place where nothing is written.
std::byte* CollectiveTable::unused(Pending& pending, DType dtype) {
  return turn_ % 2 == 0 ? nullptr : output(pending, 0, dtype);
}

void CollectiveTable::gather(DType dtype, size_t count, Rank root, bool in_place) {
  Pending pending{call_text("gather to " + std::to_string(root), dtype, count, in_place), {}, {}, {}, {}};
  const size_t first = next_first(), bytes = count * size_of(dtype);
  const auto n = static_cast<size_t>(comm_.size());
  const bool is_root = comm_.rank() == root;
  const std::byte* mine = reference_.input(dtype, comm_.rank(), first);
  std::byte* full = is_root ? output(pending, n * count, dtype) : unused(pending, dtype);
  std::byte* shard = nullptr;
  if (is_root && in_place) {
    shard = full + static_cast<size_t>(root) * bytes;
    if (bytes != 0) std::memcpy(shard, mine, bytes);
    ++turn_;  // as input() does on the others
  } else {
    shard = input(pending, mine, count, dtype);
  }
  for (size_t r = 0; is_root && r < n; ++r)
    pending.outputs.push_back({full + r * bytes, reference_.input(dtype, static_cast<Rank>(r), first), count, dtype});
  issue(std::move(pending),
        comm_.gather({.shard = shard, .full = full, .count = count, .dtype = dtype, .root = root}, stream_));
}

void CollectiveTable::scatter(DType dtype, size_t count, Rank root, bool in_place) {
  Pending pending{call_text("scatter from " + std::to_string(root), dtype, count, in_place), {}, {}, {}, {}};
  const size_t first = next_first(), bytes = count * size_of(dtype);
  const auto n = static_cast<size_t>(comm_.size()), me = static_cast<size_t>(comm_.rank());
  const bool is_root = comm_.rank() == root;
  const std::byte* given = reference_.input(dtype, root, first);
  std::byte* full = nullptr;
  if (is_root) {
    full = input(pending, given, n * count, dtype);
  } else {
    full = unused(pending, dtype);
    ++turn_;
  }
  std::byte* shard = nullptr;
  if (is_root && in_place) {
    shard = full + me * bytes;
    pending.unchanged = {{full, given, me * bytes}, {shard + bytes, given + (me + 1) * bytes, (n - 1 - me) * bytes}};
  } else {
    shard = output(pending, count, dtype);
  }
  pending.outputs.push_back({shard, given + me * bytes, count, dtype});
  issue(std::move(pending),
        comm_.scatter({.full = full, .shard = shard, .count = count, .dtype = dtype, .root = root}, stream_));
}

void CollectiveTable::reduce(DType dtype, ReduceOp op, size_t count, Rank root, bool in_place) {
  const std::string call = "reduce " + std::string(name(op)) + " to " + std::to_string(root);
  Pending pending{call_text(call, dtype, count, in_place), {}, {}, {}, {}};
  const size_t first = next_first();
  const bool is_root = comm_.rank() == root;
  std::byte* in = input(pending, reference_.input(dtype, comm_.rank(), first), count, dtype);
  std::byte* out = nullptr;
  if (!is_root) {
    out = unused(pending, dtype);
  } else if (in_place) {
    out = in;
    pending.unchanged.clear();
  } else {
    out = output(pending, count, dtype);
  }
  if (is_root) pending.outputs.push_back({out, reference_.reduced(dtype, op, first), count, dtype});
  issue(std::move(pending),
        comm_.reduce({.in = in, .out = out, .count = count, .dtype = dtype, .op = op, .root = root}, stream_));
}

// Counts of each pair [source][reader]: nothing at all, every second pair, one huge pair, all different.
std::vector<CollectiveTable::PairCounts> CollectiveTable::pair_counts(DType dtype) const {
  const auto n = static_cast<size_t>(comm_.size());
  const PairCounts none(n, std::vector<size_t>(n, 0));
  std::vector<PairCounts> all = {none};
  for (const size_t largest : counts_for(dtype, 1)) {
    PairCounts alternate = none, one_huge = none, different = none;
    for (size_t source = 0; source < n; ++source) {
      for (size_t reader = 0; reader < n; ++reader) {
        alternate[source][reader] = (source + reader + largest) % 2 == 0 ? largest / n : 0;
        one_huge[source][reader] = reader % 2;
        different[source][reader] = largest / (n + source + reader) + source;
      }
    }
    one_huge[turn_ % n][(turn_ / n) % n] = largest;
    all.insert(all.end(), {alternate, one_huge, different});
  }
  return all;
}

void CollectiveTable::run_pairs(DType dtype) {
  for (const PairCounts& counts : pair_counts(dtype)) {
    all_to_all_v(dtype, counts);
    flush();
  }
}

void CollectiveTable::all_to_all_v(DType dtype, const PairCounts& counts) {
  const auto n = static_cast<size_t>(comm_.size()), me = static_cast<size_t>(comm_.rank());
  std::vector<size_t> in_counts = counts[me], out_counts;
  for (size_t source = 0; source < n; ++source) out_counts.push_back(counts[source][me]);
  const size_t in_count = sum_of(in_counts, n), out_count = sum_of(out_counts, n), size = size_of(dtype);
  Pending pending{call_text("all_to_all_v to " + std::to_string(out_count), dtype, in_count, false), {}, {}, {}, {}};
  const size_t first = next_first();
  std::byte* in = input(pending, reference_.input(dtype, comm_.rank(), first), in_count, dtype);
  std::byte* out = output(pending, out_count, dtype);
  for (size_t source = 0; source < n; ++source) {
    const size_t before = sum_of(counts[source], me);
    const std::byte* part = reference_.input(dtype, static_cast<Rank>(source), first + before);
    pending.outputs.push_back({out + sum_of(out_counts, source) * size, part, out_counts[source], dtype});
  }
  issue(std::move(pending),
        comm_.all_to_all_v({.in = in, .in_counts = in_counts, .out = out, .out_counts = out_counts, .dtype = dtype},
                           stream_));
  std::fill(in_counts.begin(), in_counts.end(), size_t{1} << 60);
  std::fill(out_counts.begin(), out_counts.end(), size_t{1} << 60);
}

void CollectiveTable::all_reduce_many(size_t items, size_t first_dtype, bool in_place) {
  Pending pending{"all_reduce_many of " + std::to_string(items) + (in_place ? " in place" : ""), {}, {}, {}, {}};
  std::vector<AllReduceItem> given;
  for (size_t i = 0; i < items; ++i) {
    const auto dtype = static_cast<DType>((first_dtype + i * 7) % kDTypeCount);
    const std::vector<ReduceOp> ops = ops_of(dtype);
    const ReduceOp op = ops[i % ops.size()];
    const size_t count = span_.counts[(first_dtype + i) % span_.counts.size()];
    const size_t first = next_first();
    std::byte* in = input(pending, reference_.input(dtype, comm_.rank(), first), count, dtype);
    std::byte* out = in_place ? in : output(pending, count, dtype);
    if (in_place) pending.unchanged.pop_back();
    pending.outputs.push_back({out, reference_.reduced(dtype, op, first), count, dtype});
    given.push_back({.in = in, .out = out, .count = count, .dtype = dtype, .op = op});
  }
  issue(std::move(pending), comm_.all_reduce_many(given, stream_, "many tensors"));
  given.assign(given.size(), {});
}

void CollectiveTable::broadcast_many(size_t items, size_t first_dtype) {
  const Rank root = static_cast<Rank>(first_dtype % static_cast<size_t>(comm_.size()));
  Pending pending{"broadcast_many of " + std::to_string(items) + " from " + std::to_string(root), {}, {}, {}, {}};
  std::vector<BroadcastItem> given;
  for (size_t i = 0; i < items; ++i) {
    const auto dtype = static_cast<DType>((first_dtype + i * 5) % kDTypeCount);
    const size_t count = span_.counts[(first_dtype + i) % span_.counts.size()];
    const std::byte* expected = reference_.input(dtype, root, next_first());
    std::byte* data = nullptr;
    if (comm_.rank() == root) {
      data = input(pending, expected, count, dtype);
    } else {
      data = output(pending, count, dtype);
      ++turn_;
    }
    pending.outputs.push_back({data, expected, count, dtype});
    given.push_back({.data = data, .count = count, .dtype = dtype});
  }
  issue(std::move(pending), comm_.broadcast_many(given, root, stream_, "many tensors"));
  given.assign(given.size(), {});
}

}  // namespace shardcomm::testing
