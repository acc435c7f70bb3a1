// The built `shardcomm` as a child process: what it wrote, how it ended, how long it took, and that nothing of it is
// left. Single-threaded tests only.
#pragma once
#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace shardcomm::testing {

using Words = std::vector<std::string>;

struct CommandResult {
  int code = -1;  // exit code, or 128 + n where signal n killed it
  std::string out, err;
  std::chrono::milliseconds took{};
};

struct CommandSpec {
  Words arguments;
  Words environment = {};  // "NAME=value", over this process's own, which is passed on without launchers' variables
  std::string input = {};  // its standard input
  std::chrono::milliseconds deadline{30'000};  // then it is killed, and the test fails
};

class Command {
 public:
  explicit Command(const CommandSpec& spec);  // starts it
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  ~Command();  // kills what still runs

  pid_t pid() const { return pid_; }
  std::string out_so_far() const;
  // Its rank's process; waits for it. -1, and the test fails, when there is none in time.
  pid_t rank(int number);
  // Every process that it started or that was started by those, itself left out, as long as it runs.
  std::vector<pid_t> descendants() const;
  void send(int signal) const;
  // Waits for its end, and then a moment for that of every process it has started: one that stays fails the test.
  CommandResult wait();

 private:
  bool ended();  // and collected

  CommandSpec spec_;
  std::string mark_;  // in the environment of all its processes
  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
  int status_ = 0;
  bool running_ = false;
  std::chrono::steady_clock::time_point start_, end_;
};

CommandResult run_command(const Words& arguments);
CommandResult run_command(const CommandSpec& spec);

// EXPECT_TRUE(fails_with(result, 1, {"cannot", "x.txt"})): that exit code, and on standard error exactly one line,
// which begins "shardcomm: error: " and has every word.
::testing::AssertionResult fails_with(const CommandResult& result, int code,
                                      const std::vector<std::string_view>& words);
::testing::AssertionResult succeeded(const CommandResult& result);  // exit code 0 and nothing on standard error

std::vector<std::string> lines_of(std::string_view text);
std::string process_file(pid_t process, const char* name);  // of /proc; "" when the process is gone

// A directory of the test's own, gone with its content at the end.
class TestDirectory {
 public:
  TestDirectory();
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;
  ~TestDirectory();
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  // All there is below it, by relative path.
  std::set<std::string> content() const;

 private:
  std::string path_;
};

std::string read_text(const std::string& path);
void write_text(const std::string& path, std::string_view text);
// Parsed; fails the test, and is null, where it does not parse.
nlohmann::json parse_json(std::string_view text);

}  // namespace shardcomm::testing
