// shardcomm bench: verifies and times one collective over a range of sizes.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <thread>

#include "tools/bench_rank.h"
#include "tools/bench_report.h"
#include "tools/command.h"
#include "tools/launcher.h"
#include "tools/values.h"

namespace shardcomm::tools {
namespace {

struct Flags {
  std::string collective;
  std::string dtype = "f32";
  std::string op = "sum";
  std::string memory = "window";
  std::string json;
  int ranks = 0;  // 0: those of the environment
  bool threads = false;
  BenchSpec spec;
  CLI::Option* op_option = nullptr;
};

template <class Enum>
std::vector<std::string> names_of(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.emplace_back(name(static_cast<Enum>(i)));
  return names;
}

std::string check_transports(const std::string& text) {
  const Result<Options> parsed = Options::parse("transports=" + text);
  return parsed.ok() ? std::string() : std::string(parsed.status().message());
}

void add_flags(CLI::App& bench, Flags& flags) {
  BenchSpec& spec = flags.spec;
  add_word(bench, "collective", flags.collective, "What to bench", names_of<Collective>(kCollectiveCount))->required();
  add_count(bench, "--ranks", flags.ranks, "Start this many ranks here (default: the ranks of the environment)", 1,
            4096)
      ->default_str("");
  bench.add_flag("--threads", flags.threads, "With --ranks: ranks are threads of one process");
  add_size(bench, "-b,--begin", spec.begin_bytes, "Smallest size of the whole buffer", 1);
  add_size(bench, "-e,--end", spec.end_bytes, "Largest size of the whole buffer", 1);
  add_count(bench, "-f,--factor", spec.factor, "From one size to the next", 2, 1 << 20);
  add_word(bench, "--dtype", flags.dtype, "Element type", names_of<DType>(kDTypeCount));
  flags.op_option = add_word(bench, "--op", flags.op, "Reduction", names_of<ReduceOp>(kReduceOpCount));
  bench.add_option("--transports", spec.transports, "Transports to try, in order (default: as the environment says)")
      ->check(CLI::Validator(check_transports, ""))
      ->type_name("LIST");
  bench.add_flag("--in-place", spec.in_place, "Input and output in one buffer");
  add_word(bench, "--memory", flags.memory, "Where buffers lie", {"window", "ordinary"});
  add_count(bench, "--iters", spec.iterations, "Timed calls of each size", 1, 1'000'000);
  add_count(bench, "--warmup", spec.warmup, "Calls before those", 0, 1'000'000);
  bench.add_flag("--check,!--no-check", spec.check, "Verify every element before timing (default), or do not");
  bench.add_option("--seed", spec.seed, "Of the inputs; 0 draws one")->type_name("N")->capture_default_str();
  bench.add_option("--json", flags.json, "Also write the results here")->type_name("FILE");
  bench.footer(
      "One line a size, as nccl-tests has it: bytes is the whole buffer, time that of the slowest rank. Exit code 1 "
      "when\n"
      "any element was wrong. _v: shards of sizes 1 : 2 : 3 ... ; _many: up to 16 tensors of such sizes in one call.");
}

// What the parser cannot see: flags that do not go together.
void resolve(Flags& flags) {
  BenchSpec& spec = flags.spec;
  spec.collective = *parse_collective(flags.collective);
  spec.dtype = *parse_dtype(flags.dtype);
  spec.op = *parse_reduce_op(flags.op);
  spec.windows = flags.memory == "window";
  if (flags.op_option->count() > 0 && !reduces(spec.collective))
    throw UsageError(fmt::format("bench: {} has no --op", flags.collective));
  if (reduces(spec.collective) && !supports(spec.dtype, spec.op))
    throw UsageError(fmt::format("bench: {} of {} is not supported", flags.op, flags.dtype));
  if (spec.in_place && !allows_in_place(spec.collective))
    throw UsageError(fmt::format("bench: {} has no form in place", flags.collective));
  if (spec.begin_bytes > spec.end_bytes)
    throw UsageError(
        fmt::format("bench: -b {} is more than -e {}", bytes_text(spec.begin_bytes), bytes_text(spec.end_bytes)));
  if (flags.threads && flags.ranks == 0) throw UsageError("bench: --threads needs --ranks N");
}

// Runs this process's rank; rank 0 prints.
Result<BenchResult> one_rank(const Flags& flags, Store& store, Rank rank, int ranks) {
  BenchReport report{.spec = flags.spec, .ranks = ranks, .threads = flags.threads, .rows = {}};
  if (rank != 0) return bench_rank(store, rank, ranks, flags.spec, {});
  const BenchSink sink{.begin =
                           [&](const BenchSpec& spec, int) {
                             report.spec = spec;
                             print_head(report);
                           },
                       .row = [&](const BenchRow& row) { print_row(report, row); }};
  Result<BenchResult> result = bench_rank(store, rank, ranks, flags.spec, sink);
  if (!result.ok() || flags.json.empty()) return result;
  report.rows = result->rows;
  SHARDCOMM_TRY(write_json(report, flags.json));
  return result;
}

Result<BenchResult> ranks_as_threads(const Flags& flags) {
  const std::string place = fmt::format("local://bench-{}", getpid());
  std::mutex mutex;
  BenchResult worst;
  Status first_error;
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < flags.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Result<std::unique_ptr<Store>> store = open_store(place);
      Result<BenchResult> result =
          store.ok() ? one_rank(flags, **store, rank, flags.ranks) : Result<BenchResult>(store.status());
      const std::lock_guard lock(mutex);
      if (!result.ok() && first_error.ok()) first_error = result.status();
      if (result.ok() && result->wrong >= worst.wrong) worst = std::move(result).value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!first_error.ok()) return first_error;
  return worst;
}

Result<BenchResult> rank_of_environment(const Flags& flags) {
  const Result<LaunchedRank> place = LaunchedRank::from_env();
  if (!place.ok() && place.status().code() == Code::kUnavailable)
    throw UsageError("bench: no ranks: give --ranks N, or start it under shardcomm run, mpirun, srun or torchrun");
  SHARDCOMM_TRY(place.status());
  SHARDCOMM_TRY_ASSIGN(const std::unique_ptr<Store> store, open_store("env://"));
  return one_rank(flags, *store, place->rank, place->world_size);
}

}  // namespace

Subcommand add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Verify and time a collective.");
  auto flags = std::make_shared<Flags>();
  add_flags(*bench, *flags);
  return {bench, [flags](const Invocation& invocation) -> Result<int> {
            resolve(*flags);
            if (flags->ranks > 0 && !flags->threads) return launch_self(flags->ranks, invocation.arguments);
            SHARDCOMM_TRY_ASSIGN(const BenchResult result,
                                 flags->threads ? ranks_as_threads(*flags) : rank_of_environment(*flags));
            if (result.wrong == 0) return 0;
            return Status(Code::kInternal, fmt::format("{} wrong elements", result.wrong));
          }};
}

}  // namespace shardcomm::tools
