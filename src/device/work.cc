// Work: a futex word, a Status, and a list of callbacks that is closed when the work finishes.
#include <fmt/format.h>

#include <new>

#include "base/check.h"
#include "device/device.h"

namespace shardcomm {

struct Work::State::Waiting {
  Callback callback;
  Waiting* next = nullptr;
};

// The list of a finished work, which is never looked into.
Work::State::Waiting* Work::State::closed() noexcept {
  alignas(Waiting) static constinit std::byte mark[1]{};
  return reinterpret_cast<Waiting*>(mark);
}

Work::State::State(Rank rank, const char* operation, Deadline deadline) noexcept
    : rank_(rank), operation_(operation), deadline_(deadline) {}

void Work::State::set_deadline(Deadline deadline) noexcept { deadline_.store(deadline, std::memory_order_relaxed); }
Deadline Work::State::deadline() const noexcept { return deadline_.load(std::memory_order_relaxed); }

// Callbacks of a work that has not finished: its owner has gone with the whole communicator.
Work::State::~State() {
  Waiting* waiting = waiting_.load(std::memory_order_acquire);
  while (waiting != nullptr && waiting != closed()) delete std::exchange(waiting, waiting->next);
}

void Work::State::finish(Status status) noexcept {
  SHARDCOMM_CHECK(!done(), "a work finishes once");
  status_ = std::move(status);
  if (word_.exchange(kDone, std::memory_order_acq_rel) == kPendingWithSleepers) futex_wake(&word_, kWakeAll);
  Waiting* waiting = in_order(waiting_.exchange(closed(), std::memory_order_acq_rel));
  while (waiting != nullptr) {
    waiting->callback(status_);
    delete std::exchange(waiting, waiting->next);
  }
}

Work::State::Waiting* Work::State::in_order(Waiting* newest_first) noexcept {
  Waiting* oldest_first = nullptr;
  while (newest_first != nullptr) {
    Waiting* const next = std::exchange(newest_first->next, oldest_first);
    oldest_first = std::exchange(newest_first, next);
  }
  return oldest_first;
}

Status Work::State::on_done(Callback callback) {
  if (done()) {  // the list may be open yet
    callback(status_);
    return {};
  }
  auto* const waiting = new (std::nothrow) Waiting{std::move(callback)};
  if (waiting == nullptr) return Status(Code::kOutOfMemory, "a callback of a work");
  waiting->next = waiting_.load(std::memory_order_acquire);
  while (waiting->next != closed()) {
    if (waiting_.compare_exchange_weak(waiting->next, waiting, std::memory_order_acq_rel)) return {};
  }
  const std::unique_ptr<Waiting> late(waiting);
  late->callback(status_);
  return {};
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

Status Work::on_done(std::function<void(const Status&)> callback) const {
  if (callback == nullptr) return Status(Code::kInvalidArgument, "an empty callback");
  if (state_ != nullptr) return state_->on_done(std::move(callback));
  callback(Status());
  return {};
}

}  // namespace shardcomm
