#include "tools/bench/request.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/bytes.h"
#include "tools/command.h"
#include "tools/launcher.h"
#include "tools/trainer/output.h"

namespace shardcomm::tools {
namespace {

template <class Enum>
std::vector<std::string> names_of(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.emplace_back(name(static_cast<Enum>(i)));
  return names;
}

std::vector<std::string> names_of_benches() {
  std::vector<std::string> names = names_of<Collective>(kCollectiveCount);
  for (const std::string_view messages : kBenchMessagesNames) {
    if (!messages.empty()) names.emplace_back(messages);
  }
  return names;
}

// Of messages, what they have in common with a collective.
void set_bench(BenchSpec& spec, const std::string& name) {
  const auto messages = std::ranges::find(kBenchMessagesNames, name);
  if (messages == std::end(kBenchMessagesNames)) {
    spec.collective = *parse_collective(name);
    return;
  }
  spec.messages = static_cast<BenchMessages>(messages - std::begin(kBenchMessagesNames));
  spec.collective = Collective::kAllToAll;
}

void add_what(Flags& flags, BenchRequest& request) {
  BenchSpec& spec = request.spec;
  flags.word("collective", request.collective, "What to bench", names_of_benches()).without_default();
  flags.count("--ranks", request.ranks, "Start this many ranks here (default: those of the environment)", 1, kMostRanks)
      .without_default();
  flags.toggle("--threads", request.threads, "With --ranks: ranks are threads of one process");
  flags.toggle("--bind", spec.bind, "Bind each rank to a core, by its number on this machine");
  flags.transports(spec.transports);
}

void add_shapes(Flags& flags, BenchRequest& request) {
  BenchSpec& spec = request.spec;
  flags.size("-b,--begin", spec.begin_bytes, "Smallest size of the whole buffer", 1);
  flags.size("-e,--end", spec.end_bytes, "Largest size of the whole buffer", 1);
  flags.count("-f,--factor", spec.factor, "From one size to the next", 2, 1 << 20);
  flags.size("--extra", spec.extra_bytes, "On top of each size", 0);
  flags.word("--dtype", request.dtype, "Element type", names_of<DType>(kDTypeCount));
  flags.toggle("--in-place", spec.in_place, "Input and output in one buffer");
  flags.word("--memory", request.memory, "Where buffers lie; mosaic: side by side, an all_gather that copies nothing",
             names_of<BenchMemory>(kBenchMemoryCount));
  flags.size("--offset", spec.offset_bytes, "From the page at which each buffer begins", 0);
  flags.count("--items", spec.items, "Most tensors of a _many form", 1, 1 << 20);
  flags.real("--skew", spec.skew, "Largest over smallest shard (_v) or tensor (_many); 0: sizes 1 : 2 : 3 ...", 0, 1e6);
}

void add_how(Flags& flags, BenchRequest& request) {
  BenchSpec& spec = request.spec;
  flags.count("--iters", spec.iterations, "Timed samples of each size; 0: 20 to 1000, as a quarter of a second allows",
              0, 1'000'000);
  flags.count("--warmup", spec.warmup, "Calls before those", 0, 1'000'000);
  flags.toggle("--check,!--no-check", spec.check, "Verify every element before timing (default), or do not");
  flags.toggle("--limits,!--no-limits", spec.limits, "Measure the machine's limits in turn (default), or do not");
  flags.count("--seed", spec.seed, "Of the inputs; 0 draws one", 0, UINT64_MAX);
}

void add_results(Flags& flags, BenchRequest& request) {
  flags.toggle("--percentiles", request.percentiles, "Show p50, p90 and p99, too");
  flags.text("--json", request.json, "Also write the results here", "FILE");
  flags.text("--plot", request.plot, "Draw bus bandwidth and latency over size", "F.svg");
  flags.text("--tune", request.tune, "Instead: measure this machine for the planner (option tune_file)", "FILE");
  flags.texts("--with", request.with, "With --plot: results written by --json to draw, too", "FILE...");
}

void check_mosaic(const BenchRequest& request) {
  if (request.spec.collective != Collective::kAllGather)
    throw UsageError(fmt::format("bench: a mosaic has all_gather, but no {}", request.collective));
  if (request.spec.in_place) throw UsageError("bench: a mosaic is read where it lies, which --in-place cannot change");
  if (request.spec.offset_bytes != 0) throw UsageError("bench: a mosaic begins on a page, so it has no --offset");
}

void check_shapes(const BenchRequest& request, bool op_given) {
  const BenchSpec& spec = request.spec;
  if (op_given && !reduces(spec.collective)) throw UsageError(fmt::format("bench: {} has no --op", request.collective));
  if (reduces(spec.collective) && !supports(spec.dtype, spec.op))
    throw UsageError(fmt::format("bench: {} of {} is not supported", request.op, request.dtype));
  if (spec.in_place && !allows_in_place(spec.collective))
    throw UsageError(fmt::format("bench: {} has no form in place", request.collective));
  if (spec.memory == BenchMemory::kMosaic) check_mosaic(request);
  if (spec.begin_bytes > spec.end_bytes)
    throw UsageError(
        fmt::format("bench: -b {} is more than -e {}", bytes_text(spec.begin_bytes), bytes_text(spec.end_bytes)));
  if (spec.offset_bytes % size_of(spec.dtype) != 0)
    throw UsageError(fmt::format("bench: --offset {} is no multiple of the {} bytes of {}", spec.offset_bytes,
                                 size_of(spec.dtype), request.dtype));
  if (!request.plot.empty() && !traits(spec.collective).has_elements)
    throw UsageError(fmt::format("bench: {} has no sizes to --plot", request.collective));
}

}  // namespace

Flag add_bench_flags(Flags& flags, BenchRequest& request) {
  add_what(flags, request);
  add_shapes(flags, request);
  const Flag op = flags.word("--op", request.op, "Reduction", names_of<ReduceOp>(kReduceOpCount));
  add_how(flags, request);
  add_results(flags, request);
  flags.footer(
      "One line a size, as nccl-tests has it: bytes is the whole buffer, time that of the slowest rank. Exit code 1 "
      "when\n"
      "any element was wrong. _v: shards of sizes 1 : 2 : 3 ... ; _many: up to --items tensors of such sizes in one "
      "call. A mosaic's shards are whole pages. sendrecv: each rank sends the whole to the next, all at once; "
      "pingpong: two "
      "ranks send it there and back, and the time is half of that.\n"
      "Calls of less than 2 us are timed in batches. Without a collective, --plot draws what --with names.");
  return op;
}

Status resolve(BenchRequest& request, bool op_given) {
  BenchSpec& spec = request.spec;
  if (!request.with.empty() && request.plot.empty()) throw UsageError("bench: --with needs --plot F.svg");
  if (request.benches() && request.tunes()) throw UsageError("bench: --tune measures the machine, no collective");
  if (!request.benches() && !request.tunes() && request.with.empty()) throw UsageError("bench: collective is required");
  if (request.tunes() && !request.plot.empty()) throw UsageError("bench: --tune has nothing to --plot");
  if (request.threads && request.ranks == 0) throw UsageError("bench: --threads needs --ranks N");
  spec.memory = *parse_bench_memory(request.memory);
  if (request.benches()) {
    set_bench(spec, request.collective);
    spec.dtype = *parse_dtype(request.dtype);
    spec.op = *parse_reduce_op(request.op);
    check_shapes(request, op_given);
  }
  // By every rank: where one alone gave up, the others would wait for it.
  SHARDCOMM_TRY(trainer::check_output_file(request.json));
  SHARDCOMM_TRY(trainer::check_output_file(request.tune));
  return trainer::check_output_file(request.plot);
}

}  // namespace shardcomm::tools
