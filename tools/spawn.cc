#include "tools/spawn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

namespace shardcomm::tools {
namespace {

class Pipe {
 public:
  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_end(ends_[0]);
    close_end(ends_[1]);
  }
  bool open() { return pipe2(ends_, O_CLOEXEC) == 0; }
  int writing() const { return ends_[1]; }
  int reading() const { return ends_[0]; }
  int take_reading() { return std::exchange(ends_[0], -1); }
  void close_writing() { close_end(ends_[1]); }

 private:
  static void close_end(int& end) {
    if (end >= 0) close(std::exchange(end, -1));
  }
  int ends_[2] = {-1, -1};
};

std::vector<std::string> merged_environment(const std::vector<std::string>& over) {
  std::vector<std::string> merged = over;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view theirs(*entry);
    const std::string_view name = theirs.substr(0, theirs.find('=') + 1);
    bool replaced = false;
    for (const std::string& ours : over) replaced = replaced || ours.starts_with(name);
    if (!replaced) merged.emplace_back(theirs);
  }
  return merged;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& s : strings) result.push_back(s.data());
  result.push_back(nullptr);
  return result;
}

struct Exec {
  std::vector<char*> arguments;
  std::vector<char*> environment;
  const SpawnSpec& spec;
  const Pipe& output;
  const Pipe& errors;
  pid_t parent;
};

// In the child; returns only when something failed, with errno.
void become(const Exec& exec) {
  setpgid(0, 0);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return;
  if (getppid() != exec.parent) _exit(128 + SIGKILL);  // it died before we could ask to be told
  if (!exec.spec.keeps_stdin) {
    const int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0) return;
    if (null != STDIN_FILENO) close(null);
  }
  if (exec.spec.pipes_stdout && dup2(exec.output.writing(), STDOUT_FILENO) < 0) return;
  if (dup2(exec.errors.writing(), STDERR_FILENO) < 0) return;
  sigprocmask(SIG_SETMASK, &exec.spec.signal_mask, nullptr);
  execvpe(exec.arguments[0], exec.arguments.data(), exec.environment.data());
}

}  // namespace

Result<Spawned> spawn(const SpawnSpec& spec) {
  std::vector<std::string> arguments = spec.command;
  std::vector<std::string> environment = merged_environment(spec.environment);
  Pipe output;
  Pipe errors;
  Pipe failure;  // carries errno; closed by a successful exec
  if (!errors.open() || !failure.open() || (spec.pipes_stdout && !output.open()))
    return Status::native(Origin::kErrno, errno, "pipe");
  const Exec exec{pointers(arguments), pointers(environment), spec, output, errors, getpid()};
  const pid_t process = fork();
  if (process < 0) return Status::native(Origin::kErrno, errno, "fork");
  if (process == 0) {
    become(exec);
    const int error = errno;
    _exit(write(failure.writing(), &error, sizeof error) == sizeof error ? 127 : 126);
  }
  setpgid(process, process);  // here too: whoever comes first; fails harmlessly after the child's exec
  failure.close_writing();
  int error = 0;
  ssize_t n;
  while ((n = read(failure.reading(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (n > 0) {
    waitpid(process, nullptr, 0);
    return Status::native(Origin::kErrno, error, fmt::format("start '{}'", spec.command[0]));
  }
  return Spawned{process, output.take_reading(), errors.take_reading()};
}

}  // namespace shardcomm::tools
