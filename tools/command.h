// What main.cc and the subcommands agree on. A subcommand adds its flags to an app when the command line is about to be
// read, and acts after it was.
#pragma once
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/status.h"
#include "tools/flags.h"

namespace shardcomm::tools {

struct Invocation {
  std::vector<std::string> arguments;  // without the program's name, up to "--"
  std::vector<std::string> program;    // what came after "--"
  bool has_program = false;            // there was a "--"
};

// Exit codes: 0, or what a rank exited with; 1 for a Status, printed as one line; 2 for a UsageError, likewise.
constexpr int kFailed = 1;
constexpr int kMisused = 2;

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Subcommand {
  CLI::App* app;
  std::function<Result<int>(const Invocation&)> act;
};

Subcommand add_run(CLI::App& app);
Subcommand add_info(CLI::App& app);
Subcommand add_bench(CLI::App& app);
Subcommand add_train(CLI::App& app);
Subcommand add_generate(CLI::App& app);
Subcommand add_ps(CLI::App& app);
Subcommand add_dump(CLI::App& app);
Subcommand add_checkpoint_inspect(CLI::App& app);
Subcommand add_checkpoint_verify(CLI::App& app);

// Main's last words: "shardcomm: error: …" on standard error.
void print_error(std::string_view text);

}  // namespace shardcomm::tools
