#include "core/turnstile.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/futex.h"

namespace shardcomm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSleepSlice{20};  // a thread that waits for its turn looks for an abort this often

}  // namespace

Status Turnstile::sleep(uint64_t epoch, TimeLimit& limit, const Control& control) noexcept {
  while (passed() + 1 < epoch) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = bell_.load(std::memory_order_seq_cst);
    const bool waits = passed_.load(std::memory_order_seq_cst) + 1 < epoch && control.failure().ok();
    if (waits) {
      futex_wait(&bell_, seen, std::min(limit.deadline(), Clock::now() + kSleepSlice));
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    if (passed() + 1 >= epoch) break;
    SHARDCOMM_TRY(control.failure());
    if (Clock::now() < limit.deadline()) continue;
    // An operation whose turn it is ends by its own limit; its own timeout names the rank it waits for, which is the
    // better diagnosis.
    if (begun_.load(std::memory_order_relaxed) <= passed()) {
      return Status(Code::kTimedOut,
                    fmt::format("op {} waited for op {}, to which its stream has not come", epoch, passed() + 1));
    }
    limit.renew();
  }
  limit.renew();  // its own time begins with its turn
  return {};
}

void Turnstile::wake() noexcept {
  bell_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(&bell_, kWakeAll);
}

}  // namespace shardcomm
