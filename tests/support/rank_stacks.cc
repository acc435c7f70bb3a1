// Stacks of threads that hang.
#include <execinfo.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tests/support/rank_place.h"

namespace shardcomm::testing {
namespace {

const int kStackSignal = SIGUSR2;

void write_stack(int /*signal*/) {
  const int saved = errno;
  std::array<void*, 64> frames;
  constexpr char kHead[] = "-- a thread's stack:\n";
  if (write(STDERR_FILENO, kHead, sizeof kHead - 1) > 0)
    backtrace_symbols_fd(frames.data(), backtrace(frames.data(), static_cast<int>(frames.size())), STDERR_FILENO);
  errno = saved;
}

}  // namespace

void install_stack_handler() {
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads what it needs now, since a handler must not
  struct sigaction action {};
  action.sa_handler = write_stack;
  action.sa_flags = SA_RESTART;
  sigaction(kStackSignal, &action, nullptr);
}

void request_stacks(int process_id) {
  std::error_code error;
  const auto threads = std::filesystem::directory_iterator("/proc/" + std::to_string(process_id) + "/task", error);
  for (const auto& thread : threads) {
    syscall(SYS_tgkill, process_id, std::atoi(thread.path().filename().c_str()), kStackSignal);
    usleep(20'000);  // one after the other, so that their lines do not mix
  }
}

}  // namespace shardcomm::testing
