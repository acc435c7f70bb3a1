#include "core/call_order.h"

#include <sched.h>

#include <chrono>

#include "base/futex.h"
#include "base/processor.h"

namespace shardcomm {
namespace {

constexpr int kPolls = 64, kYields = 64;
// Where the thread that holds the lock has a lower priority, yielding never lets it run.
constexpr std::chrono::microseconds kNap{50};
constexpr std::chrono::milliseconds kSleepSlice{20};

}  // namespace

bool CallOrder::wait_and_take(uint32_t state) noexcept {
  if (owner_.load(std::memory_order_relaxed) == std::this_thread::get_id()) return true;
  for (int attempt = 0;; ++attempt) {
    uint32_t seen = kFree;
    if (word_.compare_exchange_weak(seen, state, std::memory_order_acquire, std::memory_order_relaxed)) return false;
    if (seen == kReserved) {
      futex_wait(&word_, kReserved, std::chrono::steady_clock::now() + kSleepSlice);
    } else if (attempt < kPolls) {
      pause();
    } else if (attempt < kPolls + kYields) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

CallOrder::Reservation::Reservation(CallOrder& order) noexcept : order_(order), is_nested_(order.take(kReserved)) {
  if (!is_nested_) order_.owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
}

CallOrder::Reservation::~Reservation() {
  if (is_nested_) return;
  order_.owner_.store({}, std::memory_order_relaxed);
  order_.word_.store(kFree, std::memory_order_release);
  futex_wake(&order_.word_, kWakeAll);
}

}  // namespace shardcomm
