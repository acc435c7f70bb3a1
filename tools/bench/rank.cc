#include "tools/bench/rank.h"

#include <algorithm>
#include <random>
#include <utility>

#include "tools/bench/call.h"
#include "tools/bench/memory.h"
#include "tools/bench/timing.h"

namespace shardcomm::tools {
namespace {

constexpr double kLimitSampleUs = 100;
constexpr double kLongCallUs = 2000;

Status barrier(Communicator& comm) { return comm.barrier(StreamRef::caller()).status(); }

// The sizes asked for, without those that come to the same number of elements.
std::vector<BenchLayout> layouts_of(const BenchSpec& spec, Rank rank, int ranks) {
  std::vector<BenchLayout> layouts;
  if (!traits(spec.collective).has_elements) return {make_layout(spec, rank, ranks, 0)};
  for (size_t bytes = spec.begin_bytes;; bytes *= spec.factor) {
    BenchLayout layout = make_layout(spec, rank, ranks, bytes + spec.extra_bytes);
    if (layouts.empty() || layouts.back().whole_count != layout.whole_count) layouts.push_back(std::move(layout));
    if (bytes > spec.end_bytes / spec.factor) return layouts;
  }
}

// Bytes of this rank's input that peers must take, as they see it: [at, at + bytes).
struct Extent {
  size_t at = 0, bytes = 0;
};
Extent input_of(const BenchSpec& spec, const BenchLayout& layout) {
  if (!moves_bytes(spec)) return {};
  const size_t width = size_of(spec.dtype);
  size_t begin = SIZE_MAX, end = 0;
  for (const InputRange& in : layout.inputs) {
    if (in.count == 0) continue;
    begin = std::min(begin, in.first);
    end = std::max(end, in.first + in.count);
  }
  return end == 0 ? Extent{} : Extent{begin * width, (end - begin) * width};
}

class Bench {
 public:
  Bench(Communicator& comm, const BenchSpec& spec)
      : comm_(comm),
        spec_(spec),
        values_{.seed = spec.seed, .dtype = spec.dtype, .op = spec.op, .ranks = comm.size()} {}

  // What all rows share. A mosaic is a row's own: its gather takes all of it.
  Status allocate(const std::vector<BenchLayout>& layouts) {
    if (spec_.memory == BenchMemory::kMosaic) return {};
    size_t in = 0;
    size_t out = 0;
    const bool shared = is_in_place(spec_);
    for (const BenchLayout& layout : layouts) {
      in = std::max(in, layout.input_extent * width());
      out = std::max(out, layout.output_extent * width());
    }
    SHARDCOMM_TRY_ASSIGN(Buffer output, Buffer::make(comm_, spec_.memory, out, spec_.offset_bytes, "bench output"));
    output_.emplace(std::move(output));
    if (shared) return {};
    SHARDCOMM_TRY_ASSIGN(Buffer input, Buffer::make(comm_, spec_.memory, in, spec_.offset_bytes, "bench input"));
    input_.emplace(std::move(input));
    return {};
  }

  // Collective. Why there are no limits, the same on every rank; nothing where there are.
  Result<std::string> find_limits(int cores) {
    size_t source = 0;
    size_t buffers = 0;
    for (Rank rank = 0; rank < comm_.size(); ++rank) {
      for (const BenchLayout& layout : layouts_of(spec_, rank, comm_.size())) {
        const Extent input = input_of(spec_, layout);
        source = std::max(source, input.at + input.bytes);
        buffers = std::max(buffers, (layout.input_extent + layout.output_extent) * width());
      }
    }
    const auto ranks = static_cast<size_t>(comm_.size());
    const bool fits = source == 0 || source + buffers < available_memory_bytes() / ranks / 10 * 8;
    SHARDCOMM_TRY_ASSIGN(const double lacks, most_of_ranks(comm_, fits ? 0 : 1));
    if (lacks > 0) return std::string("no memory for their sources");
    Result<Limits> limits = Limits::create(comm_, spec_, source, cores);
    SHARDCOMM_TRY_ASSIGN(const double failures, most_of_ranks(comm_, limits.ok() ? 0 : 1));
    if (failures > 0) return limits.ok() ? "another rank could not map their sources" : limits.status().to_string();
    limits_.emplace(std::move(limits).value());
    return std::string();
  }

  Result<BenchRow> measure(const BenchLayout& layout) {
    BenchRow row;
    row.bytes = layout.whole_count * width();
    row.count = layout.shown_count;
    BenchCall call(comm_, spec_, layout);
    SHARDCOMM_TRY(prepare(layout, call));
    if (spec_.check) {
      SHARDCOMM_TRY_ASSIGN(const uint64_t wrong, verify(layout, call));
      row.wrong = wrong;
    }
    SHARDCOMM_TRY(time(layout, call, row));
    if (call.is_prepared()) {
      SHARDCOMM_TRY_ASSIGN(row.many, time_many(call, row));
    }
    return row;
  }

 private:
  std::byte* in() const { return mosaic_ ? mosaic_->shard() : (input_ ? *input_ : *output_).data(); }
  std::byte* out() const { return output_ ? output_->data() : nullptr; }
  const std::byte* result() const { return mosaic_ ? mosaic_->all() : out(); }
  size_t width() const { return size_of(spec_.dtype); }

  Status prepare(const BenchLayout& layout, BenchCall& call) {
    if (spec_.memory == BenchMemory::kMosaic) {
      mosaic_.reset();
      SHARDCOMM_TRY_ASSIGN(MosaicWindow made, comm_.allocate_mosaic(layout.input_extent * width(), "bench mosaic"));
      call.place(mosaic_.emplace(std::move(made)));
    } else {
      output_->poison();
      if (input_) input_->poison();
      SHARDCOMM_TRY(call.place(in(), out()));
    }
    for (const InputRange& range : layout.inputs)
      fill_values(values_, comm_.rank(), range.first, range.count, in() + range.at * width());
    return {};
  }

  // Every element of the output, the untouched input, and what lies around both; summed over all ranks.
  Result<uint64_t> verify(const BenchLayout& layout, const BenchCall& call) {
    SHARDCOMM_TRY(call());
    uint64_t wrong = 0;
    for (const OutputRange& range : layout.outputs) {
      const std::byte* got = result() + range.at * width();
      wrong += range.source < 0 ? count_wrong_reductions(values_, range.first, range.count, got)
                                : count_wrong_values(values_, range.source, range.first, range.count, got);
    }
    if (output_) wrong += output_->count_stray(layout.output_extent * width());
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

  // About how long a call takes: the shortest of a few, on the slowest rank.
  Result<double> try_out(const BenchCall& call) {
    for (int i = 0; i < spec_.warmup; ++i) SHARDCOMM_TRY(call());
    SHARDCOMM_TRY(barrier(comm_));
    double least_us = 1e12;
    for (int i = 0; i < kTrialCalls; ++i) {
      const double begin = now_us();
      SHARDCOMM_TRY(call());
      least_us = std::min(least_us, now_us() - begin);
    }
    return most_of_ranks(comm_, least_us);
  }

  Status time(const BenchLayout& layout, const BenchCall& call, BenchRow& row) {
    SHARDCOMM_TRY_ASSIGN(const double call_us, try_out(call));
    row.batch = batch_for(call_us);
    row.samples = spec_.iterations > 0 ? spec_.iterations : samples_for(call_us, row.batch);
    const std::vector<Move> moves = moves_of(spec_, layout, comm_.rank(), comm_.size());
    SHARDCOMM_TRY_ASSIGN(const int limit_batch, prepare_limit(layout, moves));
    const int limit_samples = call_us > kLongCallUs ? 1 : limit_batch == 1 ? 3 : 15;  // of each block and loop
    const int blocks = std::min(kBlocks, row.samples);
    std::vector<double> calls, one_way;
    LimitSamples limit;
    for (int block = 0; block < blocks; ++block) {
      const int end = row.samples * (block + 1) / blocks;
      SHARDCOMM_TRY(time_block(call, row.batch, end - static_cast<int>(calls.size()), calls));
      if (!limits_) continue;
      SHARDCOMM_TRY(limits_->sample(moves, out(), limit_batch, limit_samples, limit));
      SHARDCOMM_TRY(barrier(comm_));
      if (const std::optional<double> us = limits_->one_way_us()) one_way.push_back(*us);
    }
    SHARDCOMM_TRY_ASSIGN(std::vector<double> slowest, slowest_samples(comm_, calls));
    if (spec_.messages == BenchMessages::kPingPong) {
      for (double& there_and_back : slowest) there_and_back /= 2;
    }
    row.time_us = statistics_of(std::move(slowest));
    row.algbw = static_cast<double>(row.bytes) / row.time_us.median / 1e3;
    row.busbw = row.algbw * bus_factor(spec_, comm_.size());
    if (limits_) SHARDCOMM_TRY(compare(limit, one_way, row));
    return {};
  }

  // The same tensors by other calls, in turn.
  Result<BenchManyTimes> time_many(BenchCall& call, const BenchRow& row) {
    constexpr int kRounds = 15;
    std::vector<double> first, plain, as_one;
    for (int round = 0; round < kRounds; ++round) {
      SHARDCOMM_TRY(call.prepare());
      SHARDCOMM_TRY(barrier(comm_));
      const double begin = now_us();
      SHARDCOMM_TRY(call());
      first.push_back(now_us() - begin);
      SHARDCOMM_TRY(time_block([&] { return call.plain(); }, row.batch, 3, plain));
      SHARDCOMM_TRY(time_block([&] { return call.as_one(); }, row.batch, 3, as_one));
    }
    const auto median = [&](std::vector<double> times) -> Result<double> {
      SHARDCOMM_TRY_ASSIGN(std::vector<double> slowest, slowest_samples(comm_, times));
      return statistics_of(std::move(slowest)).median;
    };
    BenchManyTimes times;
    SHARDCOMM_TRY_ASSIGN(times.first_us, median(std::move(first)));
    SHARDCOMM_TRY_ASSIGN(times.plain_us, median(std::move(plain)));
    SHARDCOMM_TRY_ASSIGN(times.as_one_us, median(std::move(as_one)));
    return times;
  }

  template <class Call>
  Status time_block(const Call& call, int batch, int samples, std::vector<double>& times) {
    SHARDCOMM_TRY(barrier(comm_));
    SHARDCOMM_TRY(call());
    double begin = now_us();
    for (int i = 0; i < samples; ++i) {
      for (int k = 0; k < batch; ++k) SHARDCOMM_TRY(call());
      const double end = now_us();
      times.push_back((end - begin) / batch);
      begin = end;
    }
    return {};
  }

  // The batch of the limit's samples.
  Result<int> prepare_limit(const BenchLayout& layout, const std::vector<Move>& moves) {
    if (!limits_) return 1;
    const Extent own = input_of(spec_, layout);
    limits_->prepare(moves, own.at, own.bytes);
    limits_->run(moves, out(), Loop::kPlain);
    const double begin = limits_->clock_us();
    limits_->run(moves, out(), Loop::kPlain);
    SHARDCOMM_TRY_ASSIGN(const double us, most_of_ranks(comm_, limits_->clock_us() - begin));
    // Longer samples than those of calls: what they measure has no peers to wait for, only caches.
    return static_cast<int>(std::clamp(kLimitSampleUs / us, 1.0, kMostBatch));
  }

  Status compare(const LimitSamples& samples, const std::vector<double>& one_way, BenchRow& row) {
    SHARDCOMM_TRY_ASSIGN(const double move_us, best_us(comm_, samples));
    const double line_us = statistics_of(one_way).median;
    const CollectiveTraits& has = traits(spec_.collective);
    const std::string_view moves = has.pattern == Pattern::kReduceAll ? "read_write_copy" : "read_write";
    RowLimit limit{.kind = has.reduces() ? moves : "copy", .us = move_us};
    if (line_us > move_us || !moves_bytes(spec_)) limit = {.kind = "one_way", .us = line_us};
    if (limit.us <= 0) return {};  // nothing moves, and no core for each rank
    limit.busbw = static_cast<double>(row.bytes) / limit.us / 1e3 * bus_factor(spec_, comm_.size());
    limit.percent = 100 * limit.us / row.time_us.median;
    row.limit = limit;
    return {};
  }

  Communicator& comm_;
  const BenchSpec& spec_;
  const BenchValues values_;
  std::optional<Buffer> input_;  // nothing where it is the output's buffer
  std::optional<Buffer> output_;
  std::optional<MosaicWindow> mosaic_;  // instead of both: of the row
  std::optional<Limits> limits_;
};

Status agree_on_seed(Communicator& comm, BenchSpec& spec) {
  if (comm.rank() == 0) {
    std::random_device device;
    while (spec.seed == 0) spec.seed = static_cast<uint64_t>(device()) << 32 | device();
  }
  return comm.broadcast({.data = &spec.seed, .count = 1, .dtype = DType::kU64, .root = 0}, StreamRef::caller())
      .status();
}

}  // namespace

Result<BenchResult> bench_rank(Communicator& comm, BenchSpec spec, const BenchSink& sink) {
  BenchSetup setup;
  SHARDCOMM_TRY(agree_on_seed(comm, spec));
  setup.spec = spec;
  SHARDCOMM_TRY_ASSIGN(setup.places, find_places(comm));
  const std::vector<BenchLayout> layouts = layouts_of(spec, comm.rank(), comm.size());
  Bench bench(comm, spec);
  SHARDCOMM_TRY(bench.allocate(layouts));
  if (spec.limits) {
    SHARDCOMM_TRY_ASSIGN(setup.no_limits, bench.find_limits(setup.places.usable));
    if (setup.no_limits.empty()) {
      SHARDCOMM_TRY_ASSIGN(setup.limits, machine_limits(comm, spec, setup.places.usable));
    }
  }
  if (sink.begin) sink.begin(setup);
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
