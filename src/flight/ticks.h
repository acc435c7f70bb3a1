// The recorder's clock: steady, and much cheaper to read than the steady clock itself where the kernel trusts the
// processor's time stamp counter. Ticks become nanoseconds in the reader: each record tells a moment in both units, the
// reader knows another, and between the two the counter has run evenly.
#pragma once
#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#define SHARDCOMM_READ_COUNTER() __rdtsc()
#else
#define SHARDCOMM_READ_COUNTER() \
  uint64_t { 0 }
#endif

namespace shardcomm {

inline int64_t steady_now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Whether this machine's counter runs evenly, alike on all cores, and never stops. Asked of the system once.
bool has_steady_counter() noexcept;

// Of the counter, or nanoseconds of the steady clock.
inline uint64_t read_ticks(bool of_counter) noexcept {
  return of_counter ? SHARDCOMM_READ_COUNTER() : static_cast<uint64_t>(steady_now_ns());
}

// A moment in both units.
struct TickMoment {
  uint64_t ticks = 0;
  int64_t steady_ns = 0;
  static TickMoment now(bool of_counter) noexcept;
};

// The line through two moments.
class TickScale {
 public:
  TickScale(const TickMoment& first, const TickMoment& second) noexcept;
  int64_t steady_ns(uint64_t ticks) const noexcept;  // 0 stays 0: a time that is not there

 private:
  TickMoment first_;
  double ns_per_tick_;
};

}  // namespace shardcomm
