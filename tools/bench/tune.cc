#include "tools/bench/tune.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/bench/limits.h"
#include "tools/bench/machine.h"
#include "tools/bench/rank.h"
#include "tools/bench/timing.h"
#include "tools/bytes.h"

namespace shardcomm::tools {
namespace {

constexpr size_t kCachedBytes = size_t{128} << 10;  // copied by each rank: surely in a cache of its own
constexpr size_t kStagedBytes = size_t{8} << 20;
constexpr size_t kReduceCachedBytes = size_t{256} << 10;
constexpr size_t kReduceMemoryBytes = size_t{64} << 20;

// The ragged and _many forms choose their engine like the collective that they are forms of; all_to_all_v has one.
bool is_tuned(Collective collective) {
  const CollectiveTraits& has = traits(collective);
  return has.has_elements && !has.is_ragged && !has.is_many && !has.has_own_counts();
}

class Tuner {
 public:
  Tuner(Store& store, Communicator::Group self, TuneReport& report) : store_(store), self_(self), report_(report) {}

  Status run() {
    SHARDCOMM_TRY_ASSIGN(Communicator comm, connect(""));
    SHARDCOMM_TRY_ASSIGN(report_.places, find_places(comm));
    SHARDCOMM_TRY(measure_lines(comm));
    SHARDCOMM_TRY(measure_copies(comm));
    SHARDCOMM_TRY(measure_attach(comm));
    SHARDCOMM_TRY(measure_staging());
    SHARDCOMM_TRY(measure_sums(comm));
    return measure_engines();
  }

 private:
  using Rows = std::vector<BenchRow>;

  // With the options of the environment but for these.
  Result<Communicator> connect(const std::string& text) {
    SHARDCOMM_TRY_ASSIGN(const Options options, Options::parse(text));
    return Communicator::create(store_, self_, options);
  }

  // Quickly, without looking at what comes out.
  static Result<Rows> rows_of(Communicator& comm, BenchSpec spec) {
    spec.check = spec.limits = false;
    if (spec.iterations == 0) spec.iterations = 30;
    SHARDCOMM_TRY_ASSIGN(BenchResult result, bench_rank(comm, spec, {}));
    return std::move(result.rows);
  }
  static Result<double> time_us(Communicator& comm, BenchSpec spec, size_t bytes) {
    spec.begin_bytes = spec.end_bytes = bytes;
    SHARDCOMM_TRY_ASSIGN(const Rows rows, rows_of(comm, spec));
    return rows.front().time_us.median;
  }

  void not_measured(std::string_view figures, std::string_view why) {
    report_.unmeasured.push_back(fmt::format("{}: {}", figures, why));
  }

  Status measure_lines(Communicator& comm) {
    SHARDCOMM_TRY_ASSIGN(report_.barrier_us, time_us(comm, {.collective = Collective::kBarrier}, 1));
    if (comm.size() < 2) {
      not_measured("signal_us, switch_us, lookup_us", "one rank");
      return {};
    }
    if (report_.places.oversubscribed()) {
      not_measured("signal_us, lookup_us", "more ranks than cores");
    } else {
      SHARDCOMM_TRY_ASSIGN(Limits limits, Limits::create(comm, {}, 1, report_.places.usable));
      const std::optional<double> line_us = limits.one_way_us();
      SHARDCOMM_TRY_ASSIGN(const double us, most_of_ranks(comm, line_us.value_or(0)));
      if (us > 0) report_.model.signal_us = us;
    }
    Result<double> turn = turn_us(comm);
    if (turn.ok())
      report_.model.switch_us = *turn;
    else
      not_measured("switch_us", turn.status().to_string());
    return comm.health();
  }

  // Copy bandwidth by size, all ranks at once: in caches, out of them, and where the one becomes the other.
  Status measure_copies(Communicator& comm) {
    const auto ranks = static_cast<size_t>(comm.size());
    const size_t most = std::max((size_t{64} << 20) / ranks, kCachedBytes * 4);
    SHARDCOMM_TRY_ASSIGN(Limits limits, Limits::create(comm, {}, most, report_.places.usable));
    SHARDCOMM_TRY_ASSIGN(const Pages out, Pages::make(most, true));
    const auto next = static_cast<Rank>((static_cast<size_t>(comm.rank()) + 1) % ranks);
    limits.prepare({}, 0, most);
    std::vector<std::pair<size_t, double>> speeds;  // bytes, GB/s
    for (size_t bytes = kCachedBytes; bytes <= most; bytes *= 2) {
      LimitSamples samples;
      const int batch = static_cast<int>(std::max<size_t>(1, (size_t{1} << 20) / bytes));
      SHARDCOMM_TRY(limits.sample({{0, bytes, next, 0}}, out.data(), batch, 7, samples));
      SHARDCOMM_TRY_ASSIGN(const double us, best_us(comm, samples));
      speeds.emplace_back(bytes, static_cast<double>(bytes) / us / 1e3);
    }
    report_.model.cached_gbs = speeds.front().second;
    report_.model.memory_gbs = std::min(speeds.back().second, speeds.front().second);
    const double between = std::sqrt(report_.model.cached_gbs * report_.model.memory_gbs);
    for (const auto& [bytes, gb_s] : speeds) {
      if (gb_s < between) break;
      report_.model.cache_bytes = static_cast<double>(bytes * ranks);
    }
    return {};
  }

  Status measure_attach(Communicator& comm) {
    if (comm.size() < 2) {
      not_measured("attach_us, attach_gbs", "one rank");
      return {};
    }
    Result<AttachSpeed> attach = attach_speed(comm);
    if (attach.ok()) {
      report_.model.attach_us = attach->call_us;
      report_.model.attach_gbs = attach->gb_s;
    } else {
      not_measured("attach_us, attach_gbs",
                   report_.threads ? "ranks are threads of one process" : attach.status().to_string());
    }
    return comm.health();
  }

  Status measure_staging() {
    if (self_.size < 2 || report_.threads) {
      not_measured("staged_gbs", self_.size < 2 ? "one rank" : "ranks are threads of one process");
      return {};
    }
    SHARDCOMM_TRY_ASSIGN(Communicator comm, connect("memory_access=staging"));
    const BenchSpec spec{.collective = Collective::kAllGather, .in_place = true, .memory = BenchMemory::kOrdinary};
    SHARDCOMM_TRY_ASSIGN(const double us, time_us(comm, spec, kStagedBytes));
    const double part = static_cast<double>(self_.size - 1) / self_.size;
    report_.model.staged_gbs = static_cast<double>(kStagedBytes) * part / us / 1e3;
    return {};
  }

  Result<double> sum_gb_s(Communicator& comm, DType dtype, size_t bytes, int iterations) {
    const BenchSpec spec{
        .collective = Collective::kReduceScatter, .dtype = dtype, .iterations = iterations, .warmup = 2};
    SHARDCOMM_TRY_ASSIGN(const double us, time_us(comm, spec, bytes));
    return static_cast<double>(bytes) / comm.size() / us / 1e3;
  }

  Status measure_sums(Communicator& comm) {
    for (int i = 0; i < kDTypeCount; ++i) {
      const auto dtype = static_cast<DType>(i);
      if (!supports(dtype, ReduceOp::kSum)) continue;
      SHARDCOMM_TRY_ASSIGN(report_.reduce_cached_gb_s[std::string(name(dtype))],
                           sum_gb_s(comm, dtype, kReduceCachedBytes, 0));
    }
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SHARDCOMM_TRY_ASSIGN(report_.reduce_memory_gb_s[std::string(name(dtype))],
                           sum_gb_s(comm, dtype, kReduceMemoryBytes, 5));
    }
    return {};
  }

  // Each collective by each engine, from where both can run to where only one can.
  Status measure_engines() {
    if (self_.size < 2) return {};
    SHARDCOMM_TRY_ASSIGN(Communicator inlined, connect("algorithm=inline"));
    SHARDCOMM_TRY_ASSIGN(Communicator direct, connect("algorithm=direct"));
    for (int c = 0; c < kCollectiveCount; ++c) {
      const auto collective = static_cast<Collective>(c);
      if (!is_tuned(collective)) continue;
      for (const BenchMemory memory : {BenchMemory::kWindow, BenchMemory::kOrdinary}) {
        BenchSpec spec{.collective = collective,
                       .in_place = traits(collective).pattern == Pattern::kGather,
                       .memory = memory,
                       .begin_bytes = 64,
                       .end_bytes = size_t{64} << 10};
        SHARDCOMM_TRY_ASSIGN(const Rows first, rows_of(inlined, spec));
        SHARDCOMM_TRY_ASSIGN(const Rows second, rows_of(direct, spec));
        size_t crossover = first.front().bytes;
        for (size_t i = 0; i + 1 < first.size(); ++i) {
          if (first[i].time_us.median < second[i].time_us.median) crossover = first[i + 1].bytes;
        }
        report_.crossover_bytes[std::string(name(collective))][std::string(name(memory))] = crossover;
        if (collective == Collective::kAllGather && memory == BenchMemory::kWindow &&
            !report_.places.oversubscribed()) {
          // What two meetings of all ranks leave over.
          const double peers = self_.size - 1;
          const double left_us = second.front().time_us.median - 2 * report_.model.signal_us * peers;
          report_.model.lookup_us = std::max(0.01, left_us / peers);
        }
      }
    }
    return {};
  }

  Store& store_;
  const Communicator::Group self_;
  TuneReport& report_;
};

}  // namespace

Result<TuneReport> tune(Store& store, Communicator::Group self, bool threads) {
  TuneReport report;
  report.threads = threads;
  SHARDCOMM_TRY(Tuner(store, self, report).run());
  return report;
}

void print_tuning(const TuneReport& report) {
  const MachineModel& model = report.model;
  fmt::print("# this machine, {} ranks as {} on cores {}\n", report.places.of_ranks.size(),
             report.threads ? "threads" : "processes", fmt::join(report.places.to_text(), " "));
  const auto line = [](std::string_view what, std::optional<double> value, std::string_view unit) {
    fmt::print("{:<44} {:>10} {}\n", what, value ? fmt::format("{:.3f}", *value) : "-", unit);
  };
  line("cache line one way", model.signal_us, "us");
  line("turn of two ranks on one core", model.switch_us, "us");
  line("finding a peer's bytes", model.lookup_us, "us");
  line("barrier", report.barrier_us, "us");
  line("copy in cache, each rank", model.cached_gbs, "GB/s");
  line("copy out of cache, each rank", model.memory_gbs, "GB/s");
  line("cross-memory attach, a call", model.attach_us, "us");
  line("cross-memory attach, each rank", model.attach_gbs, "GB/s");
  line("staging ring, each rank", model.staged_gbs, "GB/s");
  for (const auto& [dtype, gb_s] : report.reduce_cached_gb_s) line("sum in cache, " + dtype, gb_s, "GB/s written");
  for (const auto& [dtype, gb_s] : report.reduce_memory_gb_s) line("sum out of cache, " + dtype, gb_s, "GB/s written");
  fmt::print("{:<44} {:>10}\n", "traffic of all ranks that counts as cached",
             bytes_text(static_cast<size_t>(model.cache_bytes)));
  for (const auto& [collective, by_memory] : report.crossover_bytes) {
    for (const auto& [memory, bytes] : by_memory)
      fmt::print("{:<44} {:>10}\n", fmt::format("{}, {}: direct from", collective, memory), bytes_text(bytes));
  }
  for (const std::string& figures : report.unmeasured) fmt::print("# not measured here, {}\n", figures);
}

std::string to_json(const TuneReport& report) {
  const nlohmann::ordered_json all = {{"program", "shardcomm"},
                                      {"ranks", report.places.of_ranks.size()},
                                      {"mode", report.threads ? "threads" : "processes"},
                                      {"cores", report.places.to_text()},
                                      {"machine", nlohmann::ordered_json::parse(report.model.to_json())},
                                      {"unmeasured", report.unmeasured},
                                      {"barrier_us", report.barrier_us},
                                      {"reduce_cached_gb_s", report.reduce_cached_gb_s},
                                      {"reduce_memory_gb_s", report.reduce_memory_gb_s},
                                      {"crossover_bytes", report.crossover_bytes}};
  return all.dump(2) + "\n";
}

}  // namespace shardcomm::tools
