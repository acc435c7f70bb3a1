// The futex system call; see futex(2).
#include "base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/check.h"

namespace shardcomm {

FutexResult futex_wait(const std::atomic<uint32_t>* word, uint32_t expected, Deadline deadline) noexcept {
  // FUTEX_WAIT_BITSET takes an absolute time on CLOCK_MONOTONIC, which is std::chrono::steady_clock on Linux.
  const int64_t ns =
      std::max<int64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count(), 0);
  const timespec until = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  if (syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, &until, nullptr, FUTEX_BITSET_MATCH_ANY) == 0) {
    return FutexResult::kWoken;
  }
  switch (errno) {
    case EAGAIN: return FutexResult::kChanged;
    case ETIMEDOUT: return FutexResult::kTimedOut;
    default:
      SHARDCOMM_CHECK(errno == EINTR, "futex_wait on a word that is not mapped or not aligned");
      return FutexResult::kWoken;
  }
}

int futex_wake(const std::atomic<uint32_t>* word, int count) noexcept {
  const long woken = syscall(SYS_futex, word, FUTEX_WAKE, count, nullptr, nullptr, 0);
  return woken < 0 ? 0 : static_cast<int>(woken);
}

}  // namespace shardcomm
