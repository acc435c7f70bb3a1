#include "flight/ticks.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace shardcomm {
namespace {

// The kernel compares the counter with other clocks all the time, and uses another where it finds it lacking.
bool ask_kernel() noexcept {
#if defined(__x86_64__)
  const int file = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char name[16] = {};
  const ssize_t bytes = read(file, name, sizeof name - 1);
  close(file);
  return bytes > 0 && std::strcmp(name, "tsc\n") == 0;
#else
  return false;
#endif
}

}  // namespace

bool has_steady_counter() noexcept {
  static const bool has = ask_kernel();
  return has;
}

// The closest of a few pairs of readings: the thread may be interrupted between the two clocks.
TickMoment TickMoment::now(bool of_counter) noexcept {
  if (!of_counter) {
    const int64_t now = steady_now_ns();
    return {static_cast<uint64_t>(now), now};
  }
  constexpr int kTries = 4;
  TickMoment best;
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < kTries; ++i) {
    const uint64_t before = read_ticks(true);
    const int64_t steady_ns = steady_now_ns();
    const uint64_t width = read_ticks(true) - before;
    if (width >= least) continue;
    least = width;
    best = {before + width / 2, steady_ns};
  }
  return best;
}

TickScale::TickScale(const TickMoment& first, const TickMoment& second) noexcept
    : first_(first),
      ns_per_tick_(second.ticks > first.ticks ? static_cast<double>(second.steady_ns - first.steady_ns) /
                                                    static_cast<double>(second.ticks - first.ticks)
                                              : 1.0) {}

int64_t TickScale::steady_ns(uint64_t ticks) const noexcept {
  if (ticks == 0) return 0;
  // Counters of two cores may differ by some ticks, so a time may lie a little before the first moment. A damaged
  // record may hold any number.
  constexpr double kMost = 1e18;
  const double ns = static_cast<double>(static_cast<int64_t>(ticks - first_.ticks)) * ns_per_tick_;
  return first_.steady_ns + static_cast<int64_t>(std::clamp(ns, -kMost, kMost));
}

}  // namespace shardcomm
