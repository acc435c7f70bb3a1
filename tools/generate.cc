// shardcomm generate: text from a checkpoint.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "tools/checkpoint_path.h"
#include "tools/command.h"
#include "tools/trainer/generate.h"

namespace shardcomm::tools {

Subcommand add_generate(CLI::App& app) {
  Flags flags = add_subcommand(app, "generate", "Generate text from a checkpoint of the reference trainer.");
  auto options = std::make_shared<trainer::GenerateOptions>();
  flags
      .text("--checkpoint", options->checkpoint,
            "A step directory, or a directory of them: then the newest complete one", "DIR")
      .required();
  flags.text("--prompt", options->prompt, "Text to go on from", "TEXT");
  flags.count("--tokens", options->tokens, "Tokens to generate", 0, 1 << 24);
  flags.real("--temperature", options->sampler.temperature, "0: always the most likely token", 0, 100);
  flags.count("--top-k", options->sampler.top_k, "Only the k most likely tokens; 0: all", 0, 1 << 24);
  flags.count("--seed", options->sampler.seed, "Of the choice among tokens", 0, UINT64_MAX);
  return {flags.app(), [options](const Invocation&) -> Result<int> {
            SHARDCOMM_TRY_ASSIGN(options->checkpoint, checkpoint_path(options->checkpoint));
            fmt::print("{}", options->prompt);
            SHARDCOMM_TRY(trainer::generate(*options, [](std::string_view text) {
              fmt::print("{}", text);
              std::fflush(stdout);
            }));
            fmt::print("\n");
            return 0;
          }};
}

}  // namespace shardcomm::tools
