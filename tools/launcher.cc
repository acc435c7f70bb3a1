#include "tools/launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "tools/free_port.h"
#include "tools/line_relay.h"
#include "tools/spawn.h"

namespace shardcomm::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// After the first failure the other ranks learn of it from the library and say what they saw; SIGTERM comes to those
// that have not ended then, SIGKILL to those that ignore it.
constexpr milliseconds kGrace{3500};
constexpr milliseconds kTermination{1000};
constexpr milliseconds kLastOutput{200};  // for output that children of a rank still hold open

Result<std::string> job_secret() {
  if (const char* given = std::getenv("SHARDCOMM_JOB_SECRET"); given != nullptr && *given != '\0') return {given};
  unsigned char bytes[32];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return Status::native(Origin::kErrno, errno, "getrandom");
  std::string hex;
  for (unsigned char byte : bytes) hex += fmt::format("{:02x}", byte);
  return hex;
}

std::string threads_for(const LaunchSpec& spec) {
  if (spec.threads_per_rank > 0) return std::to_string(spec.threads_per_rank);
  if (const char* given = std::getenv("OMP_NUM_THREADS"); given != nullptr && *given != '\0') return given;
  return std::to_string(std::max(1, usable_cores() / spec.ranks));
}

// The signals that the launcher waits for instead of being interrupted by them.
class BlockedSignals {
 public:
  BlockedSignals() {
    signal(SIGCHLD, SIG_DFL);  // a parent that ignores it would make our children unwaitable
    sigset_t wanted;
    sigemptyset(&wanted);
    for (int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&wanted, number);
    sigprocmask(SIG_BLOCK, &wanted, &before_);
    descriptor_ = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() {
    if (descriptor_ >= 0) close(descriptor_);
    // One that came when nobody was left to pass it on to: it was not meant for us.
    sigset_t passed_on;
    sigemptyset(&passed_on);
    for (int number : {SIGUSR1, SIGUSR2}) sigaddset(&passed_on, number);
    const timespec at_once{};
    while (sigtimedwait(&passed_on, nullptr, &at_once) > 0) {
    }
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  int descriptor() const { return descriptor_; }
  const sigset_t& before() const { return before_; }
  // The number of one that has come, 0 if none has.
  int take() const {
    signalfd_siginfo info{};
    return read(descriptor_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t before_{};
  int descriptor_ = -1;
};

struct RankProcess {
  pid_t process = -1;
  bool running = true;
};

class Job {
 public:
  explicit Job(const LaunchSpec& spec) : spec_(spec) {}
  ~Job() {
    for (RankProcess& rank : ranks_) {
      if (!rank.running) continue;
      kill(-rank.process, SIGKILL);
      waitpid(rank.process, nullptr, 0);
    }
  }

  Status start() {
    SHARDCOMM_TRY_ASSIGN(const std::string secret, job_secret());
    SHARDCOMM_TRY_ASSIGN(FreePort port, FreePort::reserve());
    port_.emplace(std::move(port));
    const bool stdin_is_terminal = isatty(STDIN_FILENO) == 1;  // which ranks, in the background, may not read
    for (int i = 0; i < spec_.ranks; ++i) {
      SpawnSpec child{
          .command = spec_.command,
          .environment = {fmt::format("RANK={}", i), fmt::format("LOCAL_RANK={}", i),
                          fmt::format("WORLD_SIZE={}", spec_.ranks), fmt::format("LOCAL_WORLD_SIZE={}", spec_.ranks),
                          "MASTER_ADDR=127.0.0.1", fmt::format("MASTER_PORT={}", port_->port()),
                          "SHARDCOMM_JOB_SECRET=" + secret, "OMP_NUM_THREADS=" + threads_for(spec_)},
          .keeps_stdin = i == 0 && !stdin_is_terminal,
          .pipes_stdout = spec_.prefix_lines,
          .signal_mask = signals_.before()};
      SHARDCOMM_TRY_ASSIGN(const Spawned spawned, spawn(child));
      ranks_.push_back({spawned.process});
      const std::string prefix = spec_.prefix_lines ? fmt::format("[{}] ", i) : "";
      if (spawned.output >= 0) relays_.emplace_back(spawned.output, STDOUT_FILENO, prefix, nullptr);
      relays_.emplace_back(spawned.errors, STDERR_FILENO, prefix, spec_.prefix_lines ? nullptr : &repeated_);
    }
    return {};
  }

  int wait() {
    while (any_running()) {
      pass_on(time_to_next_step());
      take_signals();
      reap();
      if (Clock::now() >= next_step_) stop_harder();
    }
    const Clock::time_point end = Clock::now() + kLastOutput;
    while (any_output() && Clock::now() < end) {
      take_signals();
      pass_on(std::chrono::duration_cast<milliseconds>(end - Clock::now()) + milliseconds(1));
    }
    for (LineRelay& relay : relays_) relay.finish();
    return interrupted_ != 0 ? 128 + interrupted_ : exit_code_;
  }

 private:
  enum class Stage { kRunning, kGrace, kTerminated, kKilled };

  bool any_running() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const RankProcess& r) { return r.running; });
  }
  bool any_output() const {
    return std::any_of(relays_.begin(), relays_.end(), [](const LineRelay& r) { return r.pipe() >= 0; });
  }

  milliseconds time_to_next_step() const {
    if (next_step_ == Clock::time_point::max()) return milliseconds(-1);
    return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(next_step_ - Clock::now()));
  }

  void pass_on(milliseconds timeout) {
    std::vector<pollfd> waiting = {{signals_.descriptor(), POLLIN, 0}};
    for (const LineRelay& relay : relays_) waiting.push_back({relay.pipe(), POLLIN, 0});
    if (poll(waiting.data(), waiting.size(), static_cast<int>(timeout.count())) <= 0) return;
    for (size_t i = 0; i < relays_.size(); ++i) {
      if (waiting[i + 1].revents != 0) relays_[i].pass_on();
    }
  }

  void signal_all(int number) {
    for (const RankProcess& rank : ranks_) {
      if (rank.running) kill(-rank.process, number);
    }
  }

  // Not to what they have started, which may not know that signal.
  void signal_programs(int number) {
    for (const RankProcess& rank : ranks_) {
      if (rank.running) kill(rank.process, number);
    }
  }

  void take_signals() {
    while (const int number = signals_.take()) {
      if (number == SIGUSR1 || number == SIGUSR2) {
        signal_programs(number);  // means something to them, not to us
      } else if (number != SIGCHLD) {
        interrupt(number);
      }
    }
  }

  void interrupt(int number) {
    if (interrupted_ != 0) return stop_harder();  // asked a second time
    interrupted_ = number;
    signal_all(number);
    enter(Stage::kGrace);
  }

  void enter(Stage stage) {
    stage_ = stage;
    next_step_ = Clock::now() + (stage == Stage::kGrace ? kGrace : kTermination);
  }

  void stop_harder() {
    if (stage_ == Stage::kGrace) {
      if (interrupted_ == 0) report_stragglers();
      signal_all(SIGTERM);
      signal_all(SIGCONT);  // a stopped process takes no other signal but SIGKILL
      enter(Stage::kTerminated);
    } else {
      signal_all(SIGKILL);
      enter(Stage::kKilled);
    }
  }

  void report_stragglers() const {
    std::string who;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].running) who += fmt::format("{}{}", who.empty() ? "" : ", ", i);
    }
    fmt::print(stderr, "shardcomm: error: still running {} ms after the first failure, terminated: rank {}\n",
               kGrace.count(), who);
  }

  void reap() {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      RankProcess& rank = ranks_[i];
      siginfo_t info{};
      if (!rank.running || waitid(P_PID, static_cast<id_t>(rank.process), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
          info.si_pid == 0)
        continue;
      // What it started ends with a job that failed. The process id, and so the group's, is ours until waitpid.
      if (stage_ != Stage::kRunning || info.si_code != CLD_EXITED || info.si_status != 0) kill(-rank.process, SIGKILL);
      waitpid(rank.process, nullptr, 0);
      rank.running = false;
      note_end(i, info);
    }
  }

  void note_end(size_t rank, const siginfo_t& info) {
    const bool by_signal = info.si_code != CLD_EXITED;
    if (!by_signal && info.si_status == 0) return;
    const bool by_us = interrupted_ != 0 || (by_signal && stage_ >= Stage::kTerminated);
    if (by_signal && !by_us) {
      fmt::print(stderr, "shardcomm: error: rank {} was killed by signal {} ({})\n", rank, info.si_status,
                 strsignal(info.si_status));
    } else if (!by_us && exit_code_ == 0 && spec_.prefix_lines) {
      fmt::print(stderr, "shardcomm: error: rank {} exited with code {}\n", rank, info.si_status);
    }
    if (exit_code_ == 0) exit_code_ = by_signal ? 128 + info.si_status : info.si_status;
    if (stage_ == Stage::kRunning) enter(Stage::kGrace);
  }

  const LaunchSpec& spec_;
  BlockedSignals signals_;
  std::optional<FreePort> port_;  // held until rank 0 has had time to listen: for the whole job
  std::vector<RankProcess> ranks_;
  std::vector<LineRelay> relays_;
  RepeatedErrors repeated_;
  Stage stage_ = Stage::kRunning;
  Clock::time_point next_step_ = Clock::time_point::max();
  int exit_code_ = 0;
  int interrupted_ = 0;
};

}  // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

Result<int> launch(const LaunchSpec& spec) {
  std::fflush(nullptr);
  Job job(spec);
  SHARDCOMM_TRY(job.start());
  return job.wait();
}

Result<int> launch_self(int ranks, const std::vector<std::string>& arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Status::native(Origin::kErrno, error.value(), "read /proc/self/exe");
  LaunchSpec spec{.ranks = ranks, .threads_per_rank = 0, .command = {self}, .prefix_lines = false};
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--ranks")
      ++i;
    else if (!arguments[i].starts_with("--ranks="))
      spec.command.push_back(arguments[i]);
  }
  return launch(spec);
}

}  // namespace shardcomm::tools
