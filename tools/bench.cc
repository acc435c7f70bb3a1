// shardcomm bench: verifies and times one collective over a range of sizes.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <thread>

#include "tools/bench_rank.h"
#include "tools/bench_report.h"
#include "tools/bytes.h"
#include "tools/command.h"
#include "tools/launcher.h"

namespace shardcomm::tools {
namespace {

struct Request {
  std::string collective;
  std::string dtype = "f32";
  std::string op = "sum";
  std::string memory = "window";
  std::string json;
  int ranks = 0;  // 0: those of the environment
  bool threads = false;
  BenchSpec spec;
};

template <class Enum>
std::vector<std::string> names_of(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.emplace_back(name(static_cast<Enum>(i)));
  return names;
}

Flag add_flags(Flags& flags, Request& request) {
  BenchSpec& spec = request.spec;
  flags.word("collective", request.collective, "What to bench", names_of<Collective>(kCollectiveCount)).required();
  flags.count("--ranks", request.ranks, "Start this many ranks here (default: those of the environment)", 1, kMostRanks)
      .without_default();
  flags.toggle("--threads", request.threads, "With --ranks: ranks are threads of one process");
  flags.size("-b,--begin", spec.begin_bytes, "Smallest size of the whole buffer", 1);
  flags.size("-e,--end", spec.end_bytes, "Largest size of the whole buffer", 1);
  flags.count("-f,--factor", spec.factor, "From one size to the next", 2, 1 << 20);
  flags.word("--dtype", request.dtype, "Element type", names_of<DType>(kDTypeCount));
  const Flag op = flags.word("--op", request.op, "Reduction", names_of<ReduceOp>(kReduceOpCount));
  flags.transports(spec.transports);
  flags.toggle("--in-place", spec.in_place, "Input and output in one buffer");
  flags.word("--memory", request.memory, "Where buffers lie", {"window", "ordinary"});
  flags.count("--iters", spec.iterations, "Timed calls of each size", 1, 1'000'000);
  flags.count("--warmup", spec.warmup, "Calls before those", 0, 1'000'000);
  flags.toggle("--check,!--no-check", spec.check, "Verify every element before timing (default), or do not");
  flags.count("--seed", spec.seed, "Of the inputs; 0 draws one", 0, UINT64_MAX);
  flags.text("--json", request.json, "Also write the results here", "FILE");
  flags.footer(
      "One line a size, as nccl-tests has it: bytes is the whole buffer, time that of the slowest rank. Exit code 1 "
      "when\n"
      "any element was wrong. _v: shards of sizes 1 : 2 : 3 ... ; _many: up to 16 tensors of such sizes in one call.");
  return op;
}

// What the parser cannot see: flags that do not go together.
void resolve(Request& request, bool op_given) {
  BenchSpec& spec = request.spec;
  spec.collective = *parse_collective(request.collective);
  spec.dtype = *parse_dtype(request.dtype);
  spec.op = *parse_reduce_op(request.op);
  spec.windows = request.memory == "window";
  if (op_given && !reduces(spec.collective)) throw UsageError(fmt::format("bench: {} has no --op", request.collective));
  if (reduces(spec.collective) && !supports(spec.dtype, spec.op))
    throw UsageError(fmt::format("bench: {} of {} is not supported", request.op, request.dtype));
  if (spec.in_place && !allows_in_place(spec.collective))
    throw UsageError(fmt::format("bench: {} has no form in place", request.collective));
  if (spec.begin_bytes > spec.end_bytes)
    throw UsageError(
        fmt::format("bench: -b {} is more than -e {}", bytes_text(spec.begin_bytes), bytes_text(spec.end_bytes)));
  if (request.threads && request.ranks == 0) throw UsageError("bench: --threads needs --ranks N");
}

// Runs this process's rank; rank 0 prints.
Result<BenchResult> one_rank(const Request& request, Store& store, Rank rank, int ranks) {
  BenchReport report{.spec = request.spec, .ranks = ranks, .threads = request.threads, .rows = {}};
  if (rank != 0) return bench_rank(store, rank, ranks, request.spec, {});
  const BenchSink sink{.begin =
                           [&](const BenchSpec& spec, int) {
                             report.spec = spec;
                             print_head(report);
                           },
                       .row = [&](const BenchRow& row) { print_row(report, row); }};
  Result<BenchResult> result = bench_rank(store, rank, ranks, request.spec, sink);
  if (!result.ok() || request.json.empty()) return result;
  report.rows = result->rows;
  SHARDCOMM_TRY(write_json(report, request.json));
  return result;
}

Result<BenchResult> ranks_as_threads(const Request& request) {
  const std::string place = fmt::format("local://bench-{}", getpid());
  std::mutex mutex;
  BenchResult worst;
  Status first_error;
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < request.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Result<std::unique_ptr<Store>> store = open_store(place);
      Result<BenchResult> result =
          store.ok() ? one_rank(request, **store, rank, request.ranks) : Result<BenchResult>(store.status());
      const std::lock_guard lock(mutex);
      if (!result.ok() && first_error.ok()) first_error = result.status();
      if (result.ok() && result->wrong >= worst.wrong) worst = std::move(result).value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!first_error.ok()) return first_error;
  return worst;
}

Result<BenchResult> rank_of_environment(const Request& request) {
  const Result<LaunchedRank> place = LaunchedRank::from_env();
  if (!place.ok() && place.status().code() == Code::kUnavailable)
    throw UsageError("bench: no ranks: give --ranks N, or start it under shardcomm run, mpirun, srun or torchrun");
  SHARDCOMM_TRY(place.status());
  SHARDCOMM_TRY_ASSIGN(const std::unique_ptr<Store> store, open_store("env://"));
  return one_rank(request, *store, place->rank, place->world_size);
}

}  // namespace

Subcommand add_bench(CLI::App& app) {
  Flags flags = add_subcommand(app, "bench", "Verify and time a collective.");
  auto request = std::make_shared<Request>();
  const Flag op = add_flags(flags, *request);
  return {flags.app(), [request, op](const Invocation& invocation) -> Result<int> {
            resolve(*request, op.given());
            if (request->ranks > 0 && !request->threads) return launch_self(request->ranks, invocation.arguments);
            SHARDCOMM_TRY_ASSIGN(const BenchResult result,
                                 request->threads ? ranks_as_threads(*request) : rank_of_environment(*request));
            if (result.wrong == 0) return 0;
            return Status(Code::kInternal, fmt::format("{} wrong elements", result.wrong));
          }};
}

}  // namespace shardcomm::tools
