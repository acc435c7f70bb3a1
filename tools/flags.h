// The flags of a subcommand: one way to add each kind, with the same help, checks and messages everywhere. It stands
// before CLI11, which takes long to compile, so that only flags.cc and main.cc see that.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace shardcomm::tools {

// One added flag. What its target holds when it is added is the default, and is shown as such.
class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}
  Flag& required();
  Flag& without_default();  // the help text says it in words
  bool given() const;       // on the command line; to be asked after it was read

 private:
  CLI::Option* option_;
};

// Names are "-b,--begin", or "path" for what stands without a flag. A value of the wrong kind is an error that says
// what is wanted.
class Flags {
 public:
  explicit Flags(CLI::App* app) : app_(app) {}
  CLI::App* app() const { return app_; }

  Flags& group(const std::string& heading);  // of the flags that follow, in the help
  Flags& usage(const std::string& line);     // instead of the one that follows from the flags
  Flags& footer(const std::string& text);

  Flag count(const std::string& names, int& target, const std::string& help, int64_t least, int64_t most);
  Flag count(const std::string& names, uint64_t& target, const std::string& help, uint64_t least, uint64_t most);
  Flag size(const std::string& names, uint64_t& target, const std::string& help, uint64_t least);  // bytes: "64M"
  Flag real(const std::string& names, float& target, const std::string& help, double least, double most);
  Flag real(const std::string& names, double& target, const std::string& help, double least, double most);
  Flag word(const std::string& names, std::string& target, const std::string& help,
            const std::vector<std::string>& words);
  Flag text(const std::string& names, std::string& target, const std::string& help, const std::string& type);
  Flag texts(const std::string& names, std::vector<std::string>& target, const std::string& help,
             const std::string& type);
  Flag transports(std::string& target);                                          // --transports
  Flag toggle(const std::string& names, bool& target, const std::string& help);  // "--check,!--no-check"

 private:
  CLI::App* app_;
  std::string group_ = "Options";
};

// A subcommand of `parent`.
Flags add_subcommand(CLI::App& parent, const std::string& name, const std::string& description);

}  // namespace shardcomm::tools
