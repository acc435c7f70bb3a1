#include "tests/support/random_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace shardcomm::testing {
namespace {

using namespace std::chrono_literals;

constexpr size_t kAlign = 8;
size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

// Each operation in flight has a slot of its own.
size_t RandomCalls::window_bytes(int ranks) {
  const size_t most = kMostElements * size_of(DType::kComplex128);
  return (kMostInFlight + 1) * aligned(most + static_cast<size_t>(ranks) * most + 4 * kGuardBytes);
}

// [in, out] of this rank, filled and poisoned.
std::byte* RandomCalls::prepare(Check& check, std::string_view call, size_t in_count, size_t out_count) {
  const size_t size = size_of(check.dtype);
  check.what = "operation " + std::to_string(number_) + " " + std::string(call) + " " + std::string(name(check.dtype)) +
               " " + std::to_string(in_count) + " to " + std::to_string(out_count);
  check.output_at = aligned(in_count * size) + kGuardBytes;
  const size_t bytes = check.output_at + out_count * size + kGuardBytes;
  if (window_ == nullptr) {
    check.heap.resize(bytes);
    check.memory = check.heap.data();
  } else {
    check.memory = window_ + number_ % (kMostInFlight + 1) * (window_bytes(comm_.size()) / (kMostInFlight + 1));
  }
  std::fill_n(check.memory, bytes, kPoison);
  fill_elements(check.memory, inputs(), comm_.rank(), 0, in_count, check.dtype);
  check.input.assign(check.memory, check.memory + in_count * size);
  check.expected.resize(out_count * size);
  return check.memory;
}

std::vector<std::byte> RandomCalls::reduced(DType dtype, ReduceOp op, size_t first, size_t count) const {
  std::vector<std::vector<std::byte>> inputs_of(n(), std::vector<std::byte>(count * size_of(dtype) + 1));
  std::vector<const std::byte*> sources;
  for (size_t r = 0; r < n(); ++r) {
    fill_elements(inputs_of[r].data(), inputs(), static_cast<Rank>(r), first, count, dtype);
    sources.push_back(inputs_of[r].data());
  }
  std::vector<std::byte> result(count * size_of(dtype) + 1);
  reduce_elements(result.data(), sources, count, dtype, op);
  result.pop_back();
  return result;
}

ReduceOp RandomCalls::draw_op(DType dtype) {
  const auto op = static_cast<ReduceOp>(draw_.below(kReduceOpCount));
  return supports(dtype, op) ? op : ReduceOp::kSum;
}

Result<Work> RandomCalls::gather(Check& check, StreamRef stream) {
  const size_t count = draw_.count(kMostElements);
  std::byte* in = prepare(check, "all_gather", count, n() * count);
  for (size_t r = 0; r < n(); ++r) {
    fill_elements(check.expected.data() + r * count * size_of(check.dtype), inputs(), static_cast<Rank>(r), 0, count,
                  check.dtype);
  }
  return comm_.all_gather({in, in + check.output_at, count, check.dtype}, stream);
}

Result<Work> RandomCalls::scatter(Check& check, StreamRef stream) {
  const size_t count = draw_.count(kMostElements / n());
  const ReduceOp op = draw_op(check.dtype);
  std::byte* in = prepare(check, "reduce_scatter", n() * count, count);
  check.expected = reduced(check.dtype, op, static_cast<size_t>(comm_.rank()) * count, count);
  return comm_.reduce_scatter({in, in + check.output_at, count, check.dtype, op}, stream);
}

Result<Work> RandomCalls::all_reduce(Check& check, StreamRef stream) {
  const size_t count = draw_.count(kMostElements);
  const ReduceOp op = draw_op(check.dtype);
  std::byte* in = prepare(check, "all_reduce", count, count);
  check.expected = reduced(check.dtype, op, 0, count);
  return comm_.all_reduce({in, in + check.output_at, count, check.dtype, op}, stream);
}

Result<Work> RandomCalls::broadcast(Check& check, StreamRef stream) {
  const size_t count = draw_.count(kMostElements);
  const Rank root = draw_root();
  std::byte* data = prepare(check, "broadcast", 0, count) + check.output_at;
  fill_elements(check.expected.data(), inputs(), root, 0, count, check.dtype);
  if (comm_.rank() == root) fill_elements(data, inputs(), root, 0, count, check.dtype);
  return comm_.broadcast({data, count, check.dtype, root}, stream);
}

Result<Work> RandomCalls::exchange(Check& check, StreamRef stream) {
  const size_t count = draw_.count(kMostElements / n());
  std::byte* in = prepare(check, "all_to_all", n() * count, n() * count);
  for (size_t r = 0; r < n(); ++r) {
    fill_elements(check.expected.data() + r * count * size_of(check.dtype), inputs(), static_cast<Rank>(r),
                  static_cast<size_t>(comm_.rank()) * count, count, check.dtype);
  }
  return comm_.all_to_all({in, in + check.output_at, count, check.dtype}, stream);
}

Result<Work> RandomCalls::gather_to_root(Check& check, StreamRef stream) {
  const size_t count = draw_.count(kMostElements);
  const Rank root = draw_root();
  const bool is_root = comm_.rank() == root;
  std::byte* in = prepare(check, "gather", count, is_root ? n() * count : 0);
  for (size_t r = 0; is_root && r < n(); ++r) {
    fill_elements(check.expected.data() + r * count * size_of(check.dtype), inputs(), static_cast<Rank>(r), 0, count,
                  check.dtype);
  }
  std::byte* const full = is_root ? in + check.output_at : nullptr;
  return comm_.gather({.shard = in, .full = full, .count = count, .dtype = check.dtype, .root = root}, stream);
}

Result<Work> RandomCalls::scatter_from_root(Check& check, StreamRef stream) {
  const size_t count = draw_.count(kMostElements / n());
  const Rank root = draw_root();
  const bool is_root = comm_.rank() == root;
  std::byte* in = prepare(check, "scatter", is_root ? n() * count : 0, count);
  fill_elements(check.expected.data(), inputs(), root, static_cast<size_t>(comm_.rank()) * count, count, check.dtype);
  return comm_.scatter({.full = is_root ? in : nullptr,
                        .shard = in + check.output_at,
                        .count = count,
                        .dtype = check.dtype,
                        .root = root},
                       stream);
}

Result<Work> RandomCalls::reduce_to_root(Check& check, StreamRef stream) {
  const size_t count = draw_.count(kMostElements);
  const ReduceOp op = draw_op(check.dtype);
  const Rank root = draw_root();
  const bool is_root = comm_.rank() == root;
  std::byte* in = prepare(check, "reduce", count, is_root ? count : 0);
  if (is_root) check.expected = reduced(check.dtype, op, 0, count);
  std::byte* const out = is_root ? in + check.output_at : nullptr;
  return comm_.reduce({.in = in, .out = out, .count = count, .dtype = check.dtype, .op = op, .root = root}, stream);
}

Result<Work> RandomCalls::exchange_v(Check& check, StreamRef stream) {
  const size_t most = draw_.count(kMostElements / n());
  const uint64_t seed = inputs();
  const auto count = [&](size_t source, size_t reader) {
    const uint64_t bits = random_bits(seed, source, reader);
    return bits % 4 == 0 ? 0 : (bits >> 8) % (most + 1);
  };
  const auto me = static_cast<size_t>(comm_.rank());
  std::vector<size_t> in_counts, out_counts;
  size_t in_count = 0, out_count = 0;
  for (size_t r = 0; r < n(); ++r) {
    in_count += in_counts.emplace_back(count(me, r));
    out_count += out_counts.emplace_back(count(r, me));
  }
  std::byte* in = prepare(check, "all_to_all_v", in_count, out_count);
  size_t at = 0;
  for (size_t r = 0; r < n(); ++r) {
    size_t before = 0;
    for (size_t reader = 0; reader < me; ++reader) before += count(r, reader);
    fill_elements(check.expected.data() + at * size_of(check.dtype), inputs(), static_cast<Rank>(r), before,
                  out_counts[r], check.dtype);
    at += out_counts[r];
  }
  return comm_.all_to_all_v(
      {.in = in, .in_counts = in_counts, .out = in + check.output_at, .out_counts = out_counts, .dtype = check.dtype},
      stream);
}

std::vector<size_t> RandomCalls::draw_cuts(size_t count) {
  std::vector<size_t> cuts = {0, count};
  for (size_t left = draw_.below(20); left > 0; --left) cuts.push_back(draw_.below(count + 1));
  std::ranges::sort(cuts);
  return cuts;
}

Result<Work> RandomCalls::all_reduce_many(Check& check, StreamRef stream) {
  const size_t count = draw_.count(kMostElements), size = size_of(check.dtype);
  const ReduceOp op = draw_op(check.dtype);
  const std::vector<size_t> cuts = draw_cuts(count);
  std::byte* in = prepare(check, "all_reduce_many", count, count);
  check.expected = reduced(check.dtype, op, 0, count);
  std::vector<AllReduceItem> items;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    items.push_back({.in = in + cuts[i] * size,
                     .out = in + check.output_at + cuts[i] * size,
                     .count = cuts[i + 1] - cuts[i],
                     .dtype = check.dtype,
                     .op = op});
  }
  return comm_.all_reduce_many(items, stream);
}

Result<Work> RandomCalls::broadcast_many(Check& check, StreamRef stream) {
  const size_t count = draw_.count(kMostElements), size = size_of(check.dtype);
  const Rank root = draw_root();
  const std::vector<size_t> cuts = draw_cuts(count);
  std::byte* data = prepare(check, "broadcast_many", 0, count) + check.output_at;
  fill_elements(check.expected.data(), inputs(), root, 0, count, check.dtype);
  if (comm_.rank() == root) fill_elements(data, inputs(), root, 0, count, check.dtype);
  std::vector<BroadcastItem> items;
  for (size_t i = 0; i + 1 < cuts.size(); ++i)
    items.push_back({.data = data + cuts[i] * size, .count = cuts[i + 1] - cuts[i], .dtype = check.dtype});
  return comm_.broadcast_many(items, root, stream);
}

// Each rank sends to one other and receives from one, as one operation. On the caller's thread: a message that waits in
// a stream holds up the collectives behind it, and then one of those on another stream may be the first to time out,
// which does not know the peer. Random programs (program.h) have messages on all streams.
Result<Work> RandomCalls::messages(Check& check) {
  const size_t count = draw_.count(kMostElements), step = draw_.below(n());
  const auto me = static_cast<size_t>(comm_.rank());
  const auto from = static_cast<Rank>((me + n() - step) % n()), to = static_cast<Rank>((me + step) % n());
  const auto tag = static_cast<int32_t>(number_);
  std::byte* in = prepare(check, "send_recv_many", count, count);
  fill_elements(check.expected.data(), inputs(), from, 0, count, check.dtype);
  const SendArgs send{.data = in, .count = count, .dtype = check.dtype, .peer = to, .tag = tag};
  const RecvArgs recv{.data = in + check.output_at, .count = count, .dtype = check.dtype, .peer = from, .tag = tag};
  return comm_.send_recv_many({&send, 1}, {&recv, 1}, StreamRef::caller());
}

Status RandomCalls::one_more(StreamRef stream) {
  Check& check = checks_.emplace_back();
  check.dtype = static_cast<DType>(draw_.below(kDTypeCount));
  ++number_;
  const auto call = [&]() -> Result<Work> {
    switch (draw_.below(14)) {
      case 0: return gather(check, stream);
      case 1: return scatter(check, stream);
      case 2: return all_reduce(check, stream);
      case 3: return broadcast(check, stream);
      case 4: return exchange(check, stream);
      case 5: return gather_to_root(check, stream);
      case 6: return scatter_from_root(check, stream);
      case 7: return reduce_to_root(check, stream);
      case 8: return exchange_v(check, stream);
      case 9: return all_reduce_many(check, stream);
      case 10: return broadcast_many(check, stream);
      case 11:
      case 12: return messages(check);
      default: prepare(check, "barrier", 0, 0); return comm_.barrier(stream);
    }
  };
  Result<Work> work = call();
  if (work.ok()) {
    check.work = std::move(work).value();
    return {};
  }
  const Status failed = work.status().context(check.what);
  checks_.pop_back();
  return failed;
}

void RandomCalls::compare(const Check& check) const {
  const std::byte* memory = check.memory;
  const std::byte* output = memory + check.output_at;
  const size_t count = check.expected.size() / size_of(check.dtype);
  EXPECT_EQ(first_difference(output, check.expected.data(), count, check.dtype), std::nullopt)
      << check.what << ", seed " << seed_;
  EXPECT_TRUE(std::equal(check.input.begin(), check.input.end(), memory))
      << check.what << " wrote to its input, seed " << seed_;
  const auto is_poison = [](std::byte b) { return b == kPoison; };
  const std::byte* end = output + check.expected.size();
  EXPECT_TRUE(std::all_of(memory + check.input.size(), output, is_poison) &&
              std::all_of(end, end + kGuardBytes, is_poison))
      << check.what << " wrote beside its output, seed " << seed_;
}

Status RandomCalls::settle(size_t left) {
  for (; checks_.size() > left; checks_.pop_front()) {
    const Check& check = checks_.front();
    SHARDCOMM_TRY(check.work.synchronize(std::chrono::steady_clock::now() + 30s).context(check.what));
    compare(check);
  }
  return {};
}

void RandomCalls::abandon() {
  for (const Check& check : checks_) {
    const Status ignored = check.work.synchronize(std::chrono::steady_clock::now() + 30s);
    if (!check.work.done()) ADD_FAILURE() << check.what << " never ends: " << ignored.to_string();
  }
  checks_.clear();
}

}  // namespace shardcomm::testing
