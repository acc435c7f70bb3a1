// The tasks of one host stream, numbered from 1. An event on the stream is a number: it is reached once so many tasks
// have run. So recording costs nothing, and events outlive their stream. Any thread; run() on one.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "shardcomm/status.h"
#include "shardcomm/types.h"

namespace shardcomm {

class HostQueue {
 public:
  using Task = std::function<void()>;

  explicit HostQueue(std::string_view name) : name_(name) {}

  // Never blocks; kUnavailable beyond kHostStreamTasks queued ones.
  Status push(Task task);
  uint64_t pushed_count() const;

  // Whether tasks 1 … count have run and are destroyed.
  bool reached(uint64_t count) const noexcept { return finished_count_.load(std::memory_order_acquire) >= count; }
  // Sleeps until then; kFailedPrecondition on the queue's own thread, which would wait for itself.
  Status synchronize(uint64_t count, Deadline deadline);

  void run();    // the thread: returns once closed and empty
  void close();  // nothing is pushed any more
  bool on_own_thread() const noexcept;
  const std::string& name() const noexcept { return name_; }

 private:
  const std::string name_;
  mutable std::mutex mutex_;
  std::condition_variable task_ready_;
  std::condition_variable task_finished_;
  std::deque<Task> tasks_;
  uint64_t pushed_count_ = 0;
  std::atomic<uint64_t> finished_count_{0};  // grows under mutex_
  int synchronizing_count_ = 0;              // sleepers on task_finished_
  bool idle_ = false;                        // the thread sleeps on task_ready_
  bool closed_ = false;
};

}  // namespace shardcomm
