// shardcomm run: any program as N ranks on this machine.
#include <memory>

#include "tools/command.h"
#include "tools/launcher.h"

namespace shardcomm::tools {

Subcommand add_run(CLI::App& app) {
  Flags flags = add_subcommand(app, "run", "Start a program as N ranks on this machine.");
  auto spec = std::make_shared<LaunchSpec>();
  flags.count("-n,--ranks", spec->ranks, "How many ranks", 1, kMostRanks).required();
  flags
      .count("--threads-per-rank", spec->threads_per_rank,
             "OMP_NUM_THREADS of each rank (default: that of the environment, or cores / ranks)", 1, 4096)
      .without_default();
  flags.usage("Usage: shardcomm run -n N [--threads-per-rank T] -- PROGRAM ARGS...");
  flags.footer(
      "Each rank finds RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and a job secret in\n"
      "its environment (open_store(\"env://\") reads them). Every line of output gets the rank in front. When one "
      "rank\n"
      "fails the others are given a few seconds and then stopped; the exit code is that of the first to fail, 128 + n\n"
      "where signal n killed it. SIGUSR1 and SIGUSR2 are passed on to the programs.");
  return {flags.app(), [spec](const Invocation& invocation) -> Result<int> {
            if (invocation.program.empty())
              throw UsageError("run: a program is missing: shardcomm run -n N -- PROGRAM ARGS...");
            spec->command = invocation.program;
            return launch(*spec);
          }};
}

}  // namespace shardcomm::tools
