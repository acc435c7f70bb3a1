// The `shardcomm` command: reads the command line, hands over to one subcommand, turns its outcome into one line and an
// exit code.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>

#include "shardcomm/c.h"
#include "tools/command.h"

namespace shardcomm::tools {
namespace {

Invocation split(int argc, char** argv) {
  Invocation invocation;
  for (int i = 1; i < argc; ++i) {
    if (!invocation.has_program && std::string_view(argv[i]) == "--") {
      invocation.has_program = true;
    } else {
      (invocation.has_program ? invocation.program : invocation.arguments).emplace_back(argv[i]);
    }
  }
  return invocation;
}

// The app that the command line got to: "shardcomm ckpt verify".
const CLI::App& deepest(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : deepest(*chosen.front());
}

// "ckpt verify: "; nothing for the root.
std::string place_of(const CLI::App& app) {
  std::string place;
  for (const CLI::App* a = &app; a->get_parent() != nullptr; a = a->get_parent())
    place = a->get_name() + (place.empty() ? "" : " ") + place;
  return place.empty() ? place : place + ": ";
}

std::vector<std::string> subcommands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

// What could have stood there: the subcommands of an app that has some, else its flags.
std::string valid_choices(const CLI::App& app) {
  std::vector<std::string> names = subcommands_of(app);
  if (!names.empty()) return fmt::format("the subcommands are {}", fmt::join(names, ", "));
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& flag : option->get_lnames()) names.push_back("--" + flag);
    for (const std::string& flag : option->get_snames()) names.push_back("-" + flag);
  }
  return fmt::format("the flags are {}", fmt::join(names, " "));
}

std::string explain(const CLI::App& root, const CLI::ParseError& error) {
  const CLI::App& app = deepest(root);
  const auto extras = app.remaining();
  if (!extras.empty()) {
    const bool is_program = app.get_name() == "run" && !extras.front().starts_with("-");
    return fmt::format(
        "{}unknown argument '{}'; {}", place_of(app), extras.front(),
        is_program ? "a program goes after --: shardcomm run -n N -- PROGRAM ARGS..." : valid_choices(app));
  }
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError) && !subcommands_of(app).empty())
    return fmt::format("{}a subcommand is missing; {}", place_of(app), valid_choices(app));
  return place_of(app) + error.what();
}

int act(const Subcommand& subcommand, const Invocation& invocation) {
  if (invocation.has_program && subcommand.app->get_name() != "run")
    throw UsageError(place_of(*subcommand.app) + "nothing may follow '--'");
  const Result<int> code = subcommand.act(invocation);
  if (code.ok()) return code.value();
  print_error(code.status().to_string());
  return kFailed;
}

int run_command(int argc, char** argv) {
  CLI::App root{"Sharded collectives and ZeRO training across the ranks of a job.", "shardcomm"};
  root.set_version_flag("--version", fmt::format("shardcomm {}", shardcomm_version_string()));
  root.require_subcommand(1);
  root.footer("`shardcomm SUBCOMMAND --help` tells all about one. Sizes may be written with K, M or G.");
  std::vector<Subcommand> subcommands = {add_run(root),      add_info(root), add_bench(root), add_train(root),
                                         add_generate(root), add_ps(root),   add_dump(root)};
  CLI::App* checkpoint = root.add_subcommand("ckpt", "Look at checkpoints.");
  checkpoint->require_subcommand(1);
  subcommands.push_back(add_checkpoint_inspect(*checkpoint));
  subcommands.push_back(add_checkpoint_verify(*checkpoint));

  const Invocation invocation = split(argc, argv);
  try {
    root.parse(std::vector<std::string>(invocation.arguments.rbegin(), invocation.arguments.rend()));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return root.exit(error);  // --help, --version
    throw UsageError(explain(root, error));
  }
  for (const Subcommand& subcommand : subcommands) {
    if (subcommand.app->parsed()) return act(subcommand, invocation);
  }
  throw UsageError("a subcommand is missing");
}

}  // namespace

void print_error(std::string_view text) { fmt::print(stderr, "shardcomm: error: {}\n", text); }

}  // namespace shardcomm::tools

int main(int argc, char** argv) {
  using namespace shardcomm::tools;
  try {
    return run_command(argc, argv);
  } catch (const UsageError& error) {
    print_error(error.what());
    return kMisused;
  } catch (const std::exception& error) {
    print_error(error.what());
    return kFailed;
  }
}
