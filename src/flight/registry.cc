// A table that a signal handler can walk while threads make and destroy recorders.
#include "flight/registry.h"

#include <sched.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>

#include "flight/flight.h"

namespace shardcomm {
namespace {

// The handler raises `users` before it looks at `recorder`, unlist empties `recorder` before it looks at `users`: one
// of them sees the other.
struct Row {
  std::atomic<const FlightRecorder*> recorder{nullptr};
  std::atomic<int> users{0};
};
Row rows[kMostListed];
std::atomic<bool> dumping{false};

struct sigaction programs_action {};  // before "on" took its place
std::mutex install_mutex;
bool installed = false;

void dump_all() noexcept {
  for (Row& row : rows) {
    row.users.fetch_add(1);
    if (const FlightRecorder* recorder = row.recorder.load()) recorder->dump("signal");
    row.users.fetch_sub(1);
  }
}

void on_signal(int number, siginfo_t* info, void* context) {
  const int saved = errno;
  if (!dumping.exchange(true)) {
    dump_all();
    dumping.store(false);
  }
  errno = saved;
  if ((programs_action.sa_flags & SA_SIGINFO) != 0) {
    if (programs_action.sa_sigaction != nullptr) programs_action.sa_sigaction(number, info, context);
  } else if (programs_action.sa_handler != SIG_DFL && programs_action.sa_handler != SIG_IGN) {
    programs_action.sa_handler(number);
  }
}

}  // namespace

void list_recorder(const FlightRecorder* recorder) noexcept {
  for (Row& row : rows) {
    const FlightRecorder* none = nullptr;
    if (row.recorder.compare_exchange_strong(none, recorder)) return;
  }
}

bool unlist_recorder(const FlightRecorder* recorder) noexcept {
  for (Row& row : rows) {
    if (row.recorder.load() != recorder) continue;
    row.recorder.store(nullptr);
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (row.users.load() != 0) {
      if (std::chrono::steady_clock::now() > patience) return false;
      sched_yield();
    }
  }
  return true;
}

Status install_dump_signal(const Options& options) {
  if (options.dump_signal == "off") return {};
  const std::lock_guard lock(install_mutex);
  if (installed) return {};
  struct sigaction present {};
  if (sigaction(SIGUSR1, nullptr, &present) != 0)
    return Status::native(Origin::kErrno, errno, "asking for the handler of SIGUSR1");
  const bool is_default = (present.sa_flags & SA_SIGINFO) == 0 && present.sa_handler == SIG_DFL;
  if (options.dump_signal == "auto" && !is_default) return {};
  programs_action = present;
  struct sigaction ours {};
  ours.sa_sigaction = on_signal;
  ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  if (sigaction(SIGUSR1, &ours, nullptr) != 0) return Status::native(Origin::kErrno, errno, "handling SIGUSR1");
  installed = true;
  return {};
}

}  // namespace shardcomm
