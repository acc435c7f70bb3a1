// StreamRef and Event: each operation, by kind of stream (the caller's thread, a host stream, a CUDA stream).
#include "shardcomm/stream.h"

#include <memory>
#include <utility>

#include "base/log.h"
#include "device/cuda.h"
#include "device/device.h"
#include "device/host_stream.h"

namespace shardcomm {
namespace {

// The first `count` tasks of a host stream.
class HostEvent final : public Event::State {
 public:
  HostEvent(std::shared_ptr<HostQueue> queue, uint64_t count) : queue_(std::move(queue)), count_(count) {}
  bool done() const noexcept override { return queue_->reached(count_); }
  Status synchronize(Deadline deadline) const override { return queue_->synchronize(count_, deadline); }

 private:
  std::shared_ptr<HostQueue> queue_;
  uint64_t count_;
};

bool is_cuda(StreamRef stream) { return stream.device().kind == Device::Kind::kCuda; }

Deadline event_limit() { return std::chrono::steady_clock::now() + kEventLimit; }

}  // namespace

StreamRef StreamRef::cuda(CUstream_st* stream, int device) noexcept {
  return StreamRef(Device{Device::Kind::kCuda, static_cast<int16_t>(device)}, stream);
}

bool on_thread_of(StreamRef stream) noexcept {
  return !is_cuda(stream) && !stream.is_caller() && queue_of(stream)->on_own_thread();
}

Status StreamRef::enqueue(std::function<void()> task) const {
  if (task == nullptr) return Status(Code::kInvalidArgument, "an empty task");
  if (is_cuda(*this)) return Status(Code::kUnsupported, "a host task on a CUDA stream");
  if (!is_caller()) return queue_of(*this)->push(std::move(task));
  task();
  return {};
}

Status StreamRef::wait(const Event& event) const {
  if (is_cuda(*this)) return cuda::wait(*this, event);
  if (event.done()) return {};
  if (is_caller()) return event.synchronize(event_limit());
  // On the event's own stream this finds it reached: events lie in the past of their stream.
  return enqueue([event] {
    const Status status = event.synchronize(event_limit());
    if (!status.ok()) log(Level::kError, "a host stream goes on without an event {}", status.to_string());
  });
}

Status StreamRef::wait(const Work& work) const {
  if (is_cuda(*this)) return cuda::wait(*this, work);
  if (work.state_ == nullptr) return {};
  if (is_caller()) return work.state_->synchronize_own(work.epoch_);
  if (work.state_->done()) return {};
  return enqueue([state = work.state_, epoch = work.epoch_] {
    const Status status = state->synchronize_own(epoch);
    // A work that failed has reported it; here only one that never ended is news.
    if (!state->done()) log(Level::kError, "a host stream goes on without a work {}", status.to_string());
  });
}

Status StreamRef::synchronize(Deadline deadline) const {
  if (is_cuda(*this)) return cuda::synchronize(*this, deadline);
  if (is_caller()) return {};
  const auto& queue = queue_of(*this);
  return queue->synchronize(queue->pushed_count(), deadline);
}

Result<Event> Event::record(StreamRef stream) {
  if (is_cuda(stream)) {
    SHARDCOMM_TRY_ASSIGN(auto state, cuda::record(stream));
    return Event(std::move(state));
  }
  if (stream.is_caller()) return Event(nullptr);
  const auto& queue = queue_of(stream);
  const uint64_t count = queue->pushed_count();
  if (queue->reached(count)) return Event(nullptr);
  return Event(std::make_shared<HostEvent>(queue, count));
}

bool Event::done() const noexcept { return state_ == nullptr || state_->done(); }
Status Event::synchronize(Deadline deadline) const {
  return state_ == nullptr ? Status() : state_->synchronize(deadline);
}

}  // namespace shardcomm
