// shardcomm bench: verifies and times one collective over a range of sizes.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <thread>

#include "tools/bench/bind.h"
#include "tools/bench/plot.h"
#include "tools/bench/rank.h"
#include "tools/bench/report.h"
#include "tools/bench/request.h"
#include "tools/bench/tune.h"
#include "tools/command.h"
#include "tools/launcher.h"
#include "tools/trainer/output.h"

namespace shardcomm::tools {
namespace {

struct Place {
  Rank rank = 0;
  int ranks = 1;
  Rank local_rank = 0;
};

Result<std::vector<PlotSeries>> read_all(const std::vector<std::string>& paths) {
  std::vector<PlotSeries> all;
  for (const std::string& path : paths) {
    SHARDCOMM_TRY_ASSIGN(PlotSeries series, read_series(path));
    all.push_back(std::move(series));
  }
  return all;
}

Status save(const BenchRequest& request, const BenchReport& report) {
  const std::string json = to_json(report);
  if (!request.json.empty()) SHARDCOMM_TRY(trainer::write_file(request.json, json));
  if (request.plot.empty()) return {};
  SHARDCOMM_TRY_ASSIGN(PlotSeries own, series_of(json, "this run"));
  SHARDCOMM_TRY_ASSIGN(std::vector<PlotSeries> all, read_all(request.with));
  all.insert(all.begin(), std::move(own));
  return trainer::write_file(request.plot, plot_svg(all));
}

Status tune_rank(const BenchRequest& request, Store& store, const Place& place) {
  SHARDCOMM_TRY_ASSIGN(const TuneReport report,
                       tune(store, {.rank = place.rank, .size = place.ranks}, request.threads));
  if (place.rank != 0) return {};
  print_tuning(report);
  if (!request.json.empty()) SHARDCOMM_TRY(trainer::write_file(request.json, to_json(report)));
  return trainer::write_file(request.tune, report.model.to_json() + "\n");
}

// Runs this rank; rank 0 prints and saves. Returns the number of wrong elements.
Result<uint64_t> one_rank(const BenchRequest& request, Store& store, const Place& place) {
  const BenchSpec& spec = request.spec;
  if (spec.bind) SHARDCOMM_TRY(bind_to_core(place.local_rank));
  if (request.tunes()) {
    SHARDCOMM_TRY(tune_rank(request, store, place));
    return 0;
  }
  SHARDCOMM_TRY_ASSIGN(const Options options,
                       spec.transports.empty() ? Options::from_env() : Options::parse("transports=" + spec.transports));
  SHARDCOMM_TRY_ASSIGN(Communicator comm,
                       Communicator::create(store, {.rank = place.rank, .size = place.ranks}, options));
  BenchReport report{.setup = {}, .threads = request.threads, .percentiles = request.percentiles, .rows = {}};
  BenchSink sink;
  if (place.rank == 0) {
    sink.begin = [&](const BenchSetup& setup) {
      report.setup = setup;
      print_head(report);
    };
    sink.row = [&](const BenchRow& row) { print_row(report, row); };
  }
  SHARDCOMM_TRY_ASSIGN(BenchResult result, bench_rank(comm, spec, sink));
  report.rows = std::move(result.rows);
  if (place.rank == 0) SHARDCOMM_TRY(save(request, report));
  return result.wrong;
}

Result<uint64_t> ranks_as_threads(const BenchRequest& request) {
  const std::string meeting = fmt::format("local://bench-{}", getpid());
  std::mutex mutex;
  uint64_t wrong = 0;
  Status first_error;
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < request.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Result<std::unique_ptr<Store>> store = open_store(meeting);
      Result<uint64_t> result =
          store.ok() ? one_rank(request, **store, {rank, request.ranks, rank}) : Result<uint64_t>(store.status());
      const std::lock_guard lock(mutex);
      if (!result.ok() && first_error.ok()) first_error = result.status();
      if (result.ok()) wrong = std::max(wrong, *result);
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!first_error.ok()) return first_error;
  return wrong;
}

Result<uint64_t> rank_of_environment(const BenchRequest& request) {
  const Result<LaunchedRank> place = LaunchedRank::from_env();
  if (!place.ok() && place.status().code() == Code::kUnavailable)
    throw UsageError("bench: no ranks: give --ranks N, or start it under shardcomm run, mpirun, srun or torchrun");
  SHARDCOMM_TRY(place.status());
  SHARDCOMM_TRY_ASSIGN(const std::unique_ptr<Store> store, open_store("env://"));
  return one_rank(request, *store, {place->rank, place->world_size, place->local_rank});
}

Result<int> act(const BenchRequest& request, const Invocation& invocation) {
  // By every rank, before it benches: what cannot be drawn is found out at once.
  SHARDCOMM_TRY_ASSIGN(const std::vector<PlotSeries> others, read_all(request.with));
  if (!request.benches() && !request.tunes()) {
    SHARDCOMM_TRY(trainer::write_file(request.plot, plot_svg(others)));
    return 0;
  }
  if (request.ranks > 0 && !request.threads) return launch_self(request.ranks, invocation.arguments);
  SHARDCOMM_TRY_ASSIGN(const uint64_t wrong,
                       request.threads ? ranks_as_threads(request) : rank_of_environment(request));
  if (wrong == 0) return 0;
  return Status(Code::kInternal, fmt::format("{} wrong elements", wrong));
}

}  // namespace

Subcommand add_bench(CLI::App& app) {
  Flags flags = add_subcommand(app, "bench", "Verify and time a collective.");
  auto request = std::make_shared<BenchRequest>();
  const Flag op = add_bench_flags(flags, *request);
  return {flags.app(), [request, op](const Invocation& invocation) -> Result<int> {
            SHARDCOMM_TRY(resolve(*request, op.given()));
            return act(*request, invocation);
          }};
}

}  // namespace shardcomm::tools
