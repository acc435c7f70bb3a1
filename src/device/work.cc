// Work: a futex word and a Status.
#include <fmt/format.h>

#include "base/check.h"
#include "device/device.h"

namespace shardcomm {

Work::State::State(Rank rank, const char* operation, Deadline deadline) noexcept
    : rank_(rank), operation_(operation), deadline_(deadline) {}

void Work::State::set_deadline(Deadline deadline) noexcept { deadline_.store(deadline, std::memory_order_relaxed); }
Deadline Work::State::deadline() const noexcept { return deadline_.load(std::memory_order_relaxed); }

void Work::State::finish(Status status) noexcept {
  SHARDCOMM_CHECK(!done(), "a work finishes once");
  status_ = std::move(status);
  if (word_.exchange(kDone, std::memory_order_acq_rel) == kPendingWithSleepers) futex_wake(&word_, kWakeAll);
}

bool Work::State::sleep_until_done(Deadline deadline) const noexcept {
  while (!done()) {
    uint32_t pending = kPending;
    word_.compare_exchange_strong(pending, kPendingWithSleepers, std::memory_order_relaxed);
    if (futex_wait(&word_, kPendingWithSleepers, deadline) == FutexResult::kTimedOut) return done();
  }
  return true;
}

Status Work::State::timed_out(uint64_t epoch) const {
  return Status(Code::kTimedOut, fmt::format("rank {}: {} of epoch {} has not finished", rank_, operation_, epoch));
}

Status Work::State::synchronize(uint64_t epoch, Deadline deadline) const {
  return sleep_until_done(deadline) ? status_ : timed_out(epoch);
}

Status Work::State::synchronize_own(uint64_t epoch) const {
  for (;;) {
    const Deadline limit = deadline();
    const bool endless = limit > Deadline::max() - kWaitGrace;
    if (sleep_until_done(endless ? limit : limit + kWaitGrace)) return status_;
    if (deadline() == limit) return timed_out(epoch);
  }
}

bool Work::done() const noexcept { return state_ == nullptr || state_->done(); }

Status Work::synchronize(Deadline deadline) const {
  return state_ == nullptr ? Status() : state_->synchronize(epoch_, deadline);
}

Status Work::status() const {
  if (state_ == nullptr) return {};
  if (!state_->done()) return Status(Code::kUnavailable, fmt::format("epoch {} has not finished yet", epoch_));
  return state_->status();
}

}  // namespace shardcomm
