#include "tools/bench_rank.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <random>

namespace shardcomm::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kGuardBytes = 4096;  // before and after each buffer, which so begins on a page
constexpr std::byte kGuard{0x6B};
constexpr std::byte kPoison{0xA5};

// A buffer between guards, as a window or in ordinary memory.
class Buffer {
 public:
  static Result<Buffer> make(Communicator& comm, bool window, size_t bytes, std::string_view label) {
    Buffer buffer;
    buffer.bytes_ = bytes;
    const size_t whole = bytes + 2 * kGuardBytes;
    if (window) {
      SHARDCOMM_TRY_ASSIGN(Window made, comm.allocate_window(whole, label));
      buffer.window_.emplace(std::move(made));
      buffer.base_ = buffer.window_->data();
    } else {
      buffer.memory_.reset(new (std::align_val_t{4096}, std::nothrow) std::byte[whole]);
      if (buffer.memory_ == nullptr)
        return Status(Code::kOutOfMemory, "no memory for a buffer of " + std::to_string(whole) + " bytes");
      buffer.base_ = buffer.memory_.get();
    }
    return buffer;
  }

  std::byte* data() const { return base_ + kGuardBytes; }
  void poison() {
    std::memset(base_, static_cast<int>(kGuard), kGuardBytes);
    std::memset(data(), static_cast<int>(kPoison), bytes_);
    std::memset(data() + bytes_, static_cast<int>(kGuard), kGuardBytes);
  }
  // Bytes of the guards that were written, and of the buffer from `used_bytes` on.
  size_t count_stray(size_t used_bytes) const {
    const auto differs = [](std::byte expected) { return [expected](std::byte b) { return b != expected; }; };
    return static_cast<size_t>(std::count_if(base_, data(), differs(kGuard)) +
                               std::count_if(data() + used_bytes, data() + bytes_, differs(kPoison)) +
                               std::count_if(data() + bytes_, data() + bytes_ + kGuardBytes, differs(kGuard)));
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { operator delete[](memory, std::align_val_t{4096}); }
  };
  std::optional<Window> window_;
  std::unique_ptr<std::byte[], Free> memory_;
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
};

class Bench {
 public:
  Bench(Communicator& comm, const BenchSpec& spec)
      : comm_(comm),
        spec_(spec),
        values_{.seed = spec.seed, .dtype = spec.dtype, .op = spec.op, .ranks = comm.size()},
        durations_us_(static_cast<size_t>(spec.iterations)),
        all_durations_us_(durations_us_.size() * static_cast<size_t>(comm.size())) {}

  Status allocate(const std::vector<BenchLayout>& layouts) {
    size_t in = 0;
    size_t out = 0;
    bool shared = spec_.in_place || spec_.collective == Collective::kBroadcast;
    for (const BenchLayout& layout : layouts) {
      in = std::max(in, layout.input_extent * size_of(spec_.dtype));
      out = std::max(out, layout.output_extent * size_of(spec_.dtype));
    }
    SHARDCOMM_TRY_ASSIGN(Buffer output, Buffer::make(comm_, spec_.windows, out, "bench output"));
    output_.emplace(std::move(output));
    if (shared) return {};
    SHARDCOMM_TRY_ASSIGN(Buffer input, Buffer::make(comm_, spec_.windows, in, "bench input"));
    input_.emplace(std::move(input));
    return {};
  }

  Result<BenchRow> measure(const BenchLayout& layout) {
    BenchRow row;
    row.bytes = layout.whole_count * size_of(spec_.dtype);
    row.count = layout.shown_count;
    prepare(layout);
    if (spec_.check) {
      SHARDCOMM_TRY_ASSIGN(const uint64_t wrong, verify(layout));
      row.wrong = wrong;
    }
    SHARDCOMM_TRY(time(layout));
    SHARDCOMM_TRY(summarize(row));
    return row;
  }

 private:
  std::byte* in() const { return (input_ ? *input_ : *output_).data(); }
  std::byte* out() const { return output_->data(); }
  size_t width() const { return size_of(spec_.dtype); }

  void prepare(const BenchLayout& layout) {
    output_->poison();
    if (input_) input_->poison();
    for (const InputRange& range : layout.inputs)
      fill_values(values_, comm_.rank(), range.first, range.count, in() + range.at * width());
  }

  // Every element of the output, the untouched input, and what lies around both; summed over all ranks.
  Result<uint64_t> verify(const BenchLayout& layout) {
    SHARDCOMM_TRY(call_collective(comm_, spec_, layout, in(), out()));
    uint64_t wrong = 0;
    for (const OutputRange& range : layout.outputs) {
      const std::byte* got = out() + range.at * width();
      wrong += range.source < 0 ? count_wrong_reductions(values_, range.first, range.count, got)
                                : count_wrong_values(values_, range.source, range.first, range.count, got);
    }
    wrong += output_->count_stray(layout.output_extent * width());
    if (input_) {
      wrong += input_->count_stray(layout.input_extent * width());
      for (const InputRange& range : layout.inputs)
        wrong += count_wrong_values(values_, comm_.rank(), range.first, range.count, in() + range.at * width());
    }
    std::vector<uint64_t> of_ranks(static_cast<size_t>(comm_.size()));
    SHARDCOMM_TRY(comm_
                      .all_gather({.shard = &wrong, .full = of_ranks.data(), .count = 1, .dtype = DType::kU64},
                                  StreamRef::caller())
                      .status());
    uint64_t total = 0;
    for (uint64_t of_rank : of_ranks) total += of_rank;
    return std::max(total, wrong);  // what this rank saw counts even where the sum cannot be trusted
  }

  Status time(const BenchLayout& layout) {
    for (int i = 0; i < spec_.warmup; ++i) SHARDCOMM_TRY(call_collective(comm_, spec_, layout, in(), out()));
    SHARDCOMM_TRY(comm_.barrier(StreamRef::caller()).status());
    Clock::time_point begin = Clock::now();
    for (double& duration_us : durations_us_) {
      SHARDCOMM_TRY(call_collective(comm_, spec_, layout, in(), out()));
      const Clock::time_point end = Clock::now();
      duration_us = std::chrono::duration<double, std::micro>(end - begin).count();
      begin = end;
    }
    return {};
  }

  Status summarize(BenchRow& row) {
    SHARDCOMM_TRY(comm_
                      .all_gather({.shard = durations_us_.data(),
                                   .full = all_durations_us_.data(),
                                   .count = durations_us_.size(),
                                   .dtype = DType::kF64},
                                  StreamRef::caller())
                      .status());
    std::vector<double> slowest = durations_us_;
    for (size_t i = 0; i < all_durations_us_.size(); ++i) {
      double& duration_us = slowest[i % slowest.size()];
      duration_us = std::max(duration_us, all_durations_us_[i]);
    }
    std::sort(slowest.begin(), slowest.end());
    row.min_us = slowest.front();
    row.max_us = slowest.back();
    const size_t middle = slowest.size() / 2;
    row.median_us = slowest.size() % 2 == 1 ? slowest[middle] : (slowest[middle - 1] + slowest[middle]) / 2;
    row.algbw = row.median_us > 0 ? static_cast<double>(row.bytes) / row.median_us / 1e3 : 0;
    row.busbw = row.algbw * bus_factor(spec_.collective, comm_.size());
    return {};
  }

  Communicator& comm_;
  const BenchSpec& spec_;
  const BenchValues values_;
  std::optional<Buffer> input_;  // nothing where it is the output's buffer
  std::optional<Buffer> output_;
  std::vector<double> durations_us_;
  std::vector<double> all_durations_us_;  // [ranks, iterations]
};

// The sizes asked for, without those that come to the same number of elements.
std::vector<BenchLayout> layouts_of(const BenchSpec& spec, Rank rank, int ranks) {
  std::vector<BenchLayout> layouts;
  if (spec.collective == Collective::kBarrier) return {make_layout(spec, rank, ranks, 0)};
  for (size_t bytes = spec.begin_bytes;; bytes *= spec.factor) {
    BenchLayout layout = make_layout(spec, rank, ranks, bytes);
    if (layouts.empty() || layouts.back().whole_count != layout.whole_count) layouts.push_back(std::move(layout));
    if (bytes > spec.end_bytes / spec.factor) return layouts;
  }
}

Status agree_on_seed(Communicator& comm, BenchSpec& spec) {
  if (comm.rank() == 0) {
    std::random_device device;
    while (spec.seed == 0) spec.seed = static_cast<uint64_t>(device()) << 32 | device();
  }
  return comm.broadcast({.data = &spec.seed, .count = 1, .dtype = DType::kU64, .root = 0}, StreamRef::caller())
      .status();
}

}  // namespace

Result<BenchResult> bench_rank(Store& store, Rank rank, int ranks, BenchSpec spec, const BenchSink& sink) {
  SHARDCOMM_TRY_ASSIGN(const Options options,
                       spec.transports.empty() ? Options::from_env() : Options::parse("transports=" + spec.transports));
  SHARDCOMM_TRY_ASSIGN(Communicator comm, Communicator::create(store, {.rank = rank, .size = ranks}, options));
  SHARDCOMM_TRY(agree_on_seed(comm, spec));
  const std::vector<BenchLayout> layouts = layouts_of(spec, rank, ranks);
  Bench bench(comm, spec);
  SHARDCOMM_TRY(bench.allocate(layouts));
  if (sink.begin) sink.begin(spec, ranks);
  BenchResult result;
  for (const BenchLayout& layout : layouts) {
    SHARDCOMM_TRY_ASSIGN(const BenchRow row, bench.measure(layout));
    if (sink.row) sink.row(row);
    result.wrong += row.wrong.value_or(0);
    result.rows.push_back(row);
  }
  return result;
}

}  // namespace shardcomm::tools
