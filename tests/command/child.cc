#include "tests/command/child.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace shardcomm::testing {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPoll{2};
constexpr milliseconds kLeaving{5000};  // for the last process of a command that has ended

// Standard output and error go to memory files: no pipe to empty, and their content outlives every writer.
int memory_file(std::string_view content = {}) {
  const int file = memfd_create("command", MFD_CLOEXEC);
  if (file < 0 || write(file, content.data(), content.size()) != static_cast<ssize_t>(content.size()) ||
      lseek(file, 0, SEEK_SET) != 0)
    throw std::runtime_error("memfd_create");
  return file;
}

std::string content_of(int file) {
  struct stat about {};
  if (fstat(file, &about) != 0) return {};
  std::string text(static_cast<size_t>(about.st_size), '\0');
  const ssize_t n = pread(file, text.data(), text.size(), 0);
  text.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return text;
}

bool is_of_a_launcher(std::string_view variable) {
  static constexpr std::string_view kPrefixes[] = {
      "SHARDCOMM_",   "OMP_",         "RANK=",  "LOCAL_RANK=", "WORLD_SIZE=", "LOCAL_",
      "MASTER_ADDR=", "MASTER_PORT=", "SLURM_", "OMPI_",       "PMI"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return variable.starts_with(prefix); });
}

std::string fresh_mark() {
  static std::atomic<int> made{0};
  return "COMMAND_TEST_MARK=" + std::to_string(getpid()) + "-" + std::to_string(made++);
}

bool has_variable(pid_t process, const std::string& assignment) {
  const std::string environment = '\0' + process_file(process, "environ");
  return environment.find('\0' + assignment + '\0') != std::string::npos;
}

std::vector<char*> pointers(Words& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

}  // namespace

Command::Command(const CommandSpec& spec) : spec_(spec), mark_(fresh_mark()) {
  Words arguments = spec.arguments;
  arguments.insert(arguments.begin(), SHARDCOMM_COMMAND);
  Words environment = spec.environment;
  environment.push_back(mark_);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!is_of_a_launcher(*entry)) environment.emplace_back(*entry);
  }
  const std::vector<char*> argv = pointers(arguments), envp = pointers(environment);
  const int input = memory_file(spec.input);
  out_ = memory_file();
  err_ = memory_file();
  start_ = Clock::now();
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(input, STDIN_FILENO);
    dup2(out_, STDOUT_FILENO);
    dup2(err_, STDERR_FILENO);
    execve(SHARDCOMM_COMMAND, argv.data(), envp.data());
    _exit(126);
  }
  close(input);
  running_ = pid_ > 0;
  EXPECT_TRUE(running_) << "fork";
}

Command::~Command() {
  if (running_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const pid_t process : descendants()) kill(process, SIGKILL);
  close(out_);
  close(err_);
}

std::string Command::out_so_far() const { return content_of(out_); }

void Command::send(int signal) const { kill(pid_, signal); }

std::vector<pid_t> Command::descendants() const {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    const pid_t process = std::atoi(name.c_str());
    if (process > 0 && process != pid_ && process != getpid() && has_variable(process, mark_)) found.push_back(process);
  }
  return found;
}

pid_t Command::rank(int number) {
  const Clock::time_point deadline = Clock::now() + spec_.deadline;
  while (Clock::now() < deadline && !ended()) {
    for (const pid_t process : descendants()) {
      if (has_variable(process, "RANK=" + std::to_string(number))) return process;
    }
    std::this_thread::sleep_for(kPoll);
  }
  ADD_FAILURE() << "no process of rank " << number << "\n" << content_of(out_) << content_of(err_);
  return -1;
}

bool Command::ended() {
  if (running_ && waitpid(pid_, &status_, WNOHANG) == pid_) {
    running_ = false;
    end_ = Clock::now();
  }
  return !running_;
}

CommandResult Command::wait() {
  while (!ended() && Clock::now() < start_ + spec_.deadline) std::this_thread::sleep_for(kPoll);
  if (running_) {
    ADD_FAILURE() << "the command still runs after " << spec_.deadline.count() << " ms";
    kill(pid_, SIGKILL);
    waitpid(pid_, &status_, 0);
    running_ = false;
    end_ = Clock::now();
  }
  const Clock::time_point deadline = Clock::now() + kLeaving;
  while (!descendants().empty() && Clock::now() < deadline) std::this_thread::sleep_for(kPoll);
  for (const pid_t left : descendants())
    ADD_FAILURE() << "process " << left << " is left over: " << process_file(left, "cmdline");
  CommandResult result{.code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_),
                       .out = content_of(out_),
                       .err = content_of(err_),
                       .took = std::chrono::duration_cast<milliseconds>(end_ - start_)};
  return result;
}

CommandResult run_command(const CommandSpec& spec) { return Command(spec).wait(); }
CommandResult run_command(const Words& arguments) { return run_command(CommandSpec{.arguments = arguments}); }

::testing::AssertionResult fails_with(const CommandResult& result, int code,
                                      const std::vector<std::string_view>& words) {
  const auto failure = [&] {
    return ::testing::AssertionFailure() << "exit code " << result.code << ", standard error:\n" << result.err;
  };
  if (result.code != code) return failure() << "expected exit code " << code;
  if (!result.err.starts_with("shardcomm: error: ") || !result.err.ends_with("\n") || lines_of(result.err).size() != 1)
    return failure() << "expected exactly one line of the form 'shardcomm: error: ...'";
  for (const std::string_view word : words) {
    if (result.err.find(word) == std::string::npos) return failure() << "expected the word '" << word << "'";
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult succeeded(const CommandResult& result) {
  if (result.code == 0 && result.err.empty()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "exit code " << result.code << ", standard output:\n"
                                       << result.out << "standard error:\n"
                                       << result.err;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string process_file(pid_t process, const char* name) {
  return read_text("/proc/" + std::to_string(process) + "/" + name);
}

TestDirectory::TestDirectory() {
  path_ = ::testing::TempDir() + "/shardcomm-command-XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp " + path_);
}

TestDirectory::~TestDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::set<std::string> TestDirectory::content() const {
  std::set<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(path_))
    found.insert(fs::relative(entry.path(), path_).string());
  return found;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_text(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.flush();
  if (!file) throw std::runtime_error("write " + path);
}

nlohmann::json parse_json(std::string_view text) {
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << "not JSON: " << text;
  return json.is_discarded() ? nlohmann::json() : json;
}

}  // namespace shardcomm::testing
