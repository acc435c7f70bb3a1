// A bounded first-in-first-out queue between any number of threads and the one that runs it.
#include "device/host_queue.h"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "base/check.h"
#include "device/device.h"

namespace shardcomm {
namespace {

thread_local const HostQueue* queue_of_this_thread = nullptr;

}  // namespace

bool HostQueue::on_own_thread() const noexcept { return queue_of_this_thread == this; }

Status HostQueue::push(Task task) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    SHARDCOMM_CHECK(!closed_, "a host stream was used after its end");
    if (tasks_.size() >= kHostStreamTasks) {
      return Status(Code::kUnavailable, fmt::format("host stream {} is full with {} tasks", name_, tasks_.size()));
    }
    try {
      tasks_.push_back(std::move(task));
    } catch (const std::bad_alloc&) {
      return Status(Code::kOutOfMemory, fmt::format("host stream {} cannot hold another task", name_));
    }
    ++pushed_count_;
    wake = std::exchange(idle_, false);
  }
  if (wake) task_ready_.notify_one();
  return {};
}

uint64_t HostQueue::pushed_count() const {
  const std::lock_guard lock(mutex_);
  return pushed_count_;
}

Status HostQueue::synchronize(uint64_t count, Deadline deadline) {
  if (reached(count)) return {};
  if (on_own_thread()) {
    return Status(Code::kFailedPrecondition, fmt::format("a task of host stream {} waits for its own stream", name_));
  }
  std::unique_lock lock(mutex_);
  ++synchronizing_count_;
  const bool in_time = task_finished_.wait_until(lock, deadline, [&] { return reached(count); });
  --synchronizing_count_;
  if (in_time) return {};
  return Status(Code::kTimedOut, fmt::format("host stream {} has run {} of {} tasks", name_,
                                             finished_count_.load(std::memory_order_relaxed), count));
}

void HostQueue::run() {
  queue_of_this_thread = this;
  std::unique_lock lock(mutex_);
  for (;;) {
    while (tasks_.empty() && !closed_) {
      idle_ = true;
      task_ready_.wait(lock);
    }
    if (tasks_.empty()) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it captured ends before it counts as finished
    lock.lock();
    finished_count_.fetch_add(1, std::memory_order_release);
    if (synchronizing_count_ > 0) task_finished_.notify_all();
  }
}

void HostQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  task_ready_.notify_one();
}

}  // namespace shardcomm
