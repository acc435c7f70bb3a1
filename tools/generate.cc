// shardcomm generate: text from a checkpoint.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "tools/checkpoint_path.h"
#include "tools/command.h"
#include "tools/trainer/generate.h"
#include "tools/values.h"

namespace shardcomm::tools {

Subcommand add_generate(CLI::App& app) {
  CLI::App* generate = app.add_subcommand("generate", "Generate text from a checkpoint of the reference trainer.");
  auto options = std::make_shared<trainer::GenerateOptions>();
  generate
      ->add_option("--checkpoint", options->checkpoint,
                   "A step directory, or a directory of them: then the newest complete one")
      ->required()
      ->type_name("DIR");
  generate->add_option("--prompt", options->prompt, "Text to go on from")->capture_default_str();
  generate->add_option("--tokens", options->tokens, "Tokens to generate")
      ->check(whole_number(0, 1 << 24))
      ->capture_default_str();
  generate->add_option("--temperature", options->sampler.temperature, "0: always the most likely token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  generate->add_option("--top-k", options->sampler.top_k, "Only the k most likely tokens; 0: all")
      ->check(whole_number(0, 1 << 24))
      ->capture_default_str();
  generate->add_option("--seed", options->sampler.seed, "Of the choice among tokens")->capture_default_str();
  return {generate, [options](const Invocation&) -> Result<int> {
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
