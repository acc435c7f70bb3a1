// Order, without saying where: a StreamRef is a CUDA stream, a host stream, or the calling thread itself; an Event and
// a Work can be waited on from any of them. `wait` orders streams and never blocks the host (except on the caller
// stream, whose order *is* the host thread); `synchronize` may block and takes a deadline.
#pragma once
#include <functional>
#include <memory>

#include "shardcomm/status.h"
#include "shardcomm/types.h"

struct CUstream_st;  // so that no public header includes CUDA

namespace shardcomm {

class Event;
class Work;

// A non-owning name of a stream; two words, pass by value. It must not outlive the stream it names.
class SHARDCOMM_EXPORT StreamRef {
 public:
  // The calling thread: what is enqueued runs before the call returns.
  static StreamRef caller() noexcept { return StreamRef(Device{}, nullptr); }
  static StreamRef cuda(CUstream_st* stream, int device) noexcept;
  // Wraps the handle of shardcomm_host_stream_create or HostStream::ref().native().
  static StreamRef host(void* native) noexcept { return StreamRef(Device{}, native); }

  Device device() const noexcept { return device_; }
  void* native() const noexcept { return native_; }
  bool is_caller() const noexcept { return device_.kind == Device::Kind::kHost && native_ == nullptr; }

  Status wait(const Event& event) const;        // later work here runs after the event
  Status wait(const Work& work) const;          // later work here runs after the collective
  Status synchronize(Deadline deadline) const;  // until everything enqueued so far has run

  // Host streams only: runs `task` in order with everything else here; on the caller stream at once.
  // Never blocks; kUnavailable when the queue is full. A task must not wait for a later task of its own stream.
  Status enqueue(std::function<void()> task) const;

 private:
  StreamRef(Device device, void* native) noexcept : device_(device), native_(native) {}
  Device device_;
  void* native_;
};

// Owns one FIFO thread. enqueue may be called from any thread.
class SHARDCOMM_EXPORT HostStream {
 public:
  static Result<HostStream> create(std::string_view thread_name);
  HostStream(HostStream&&) noexcept;
  HostStream& operator=(HostStream&&) noexcept;
  ~HostStream();  // drains, then joins
  StreamRef ref() const noexcept;

  struct Impl;

 private:
  explicit HostStream(std::unique_ptr<Impl>) noexcept;
  std::unique_ptr<Impl> impl_;
};

// Marks a point in one stream. Copies share it; const members may be called from any thread.
class SHARDCOMM_EXPORT Event {
 public:
  static Result<Event> record(StreamRef stream);
  bool done() const noexcept;
  Status synchronize(Deadline deadline) const;

  struct State;

 private:
  friend class StreamRef;
  explicit Event(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<State> state_;  // null: already reached when recorded
};

// One enqueued collective. Copies share it; dropping it cancels nothing. Any thread.
// A default Work is one that has succeeded.
class SHARDCOMM_EXPORT Work {
 public:
  Work() noexcept = default;
  uint64_t epoch() const noexcept { return epoch_; }  // its sequence number in the communicator, from 1
  bool done() const noexcept;                         // finished, well or not
  Status synchronize(Deadline deadline) const;        // blocks the host; where asynchronous errors surface
  Status status() const;                              // kUnavailable until done()
  // Calls `callback` once when the work has finished, well or not, with its status: on the thread that finishes it, or
  // at once on the calling thread if it is done already. It may be called several times, by any thread; the callbacks
  // of one thread run in the order in which they were given. A callback must not block, since the operations behind
  // this one wait for it, and must not throw: an exception that leaves it ends the program. A work that never runs,
  // because its stream has gone, calls it with kAborted. kInvalidArgument if `callback` is empty.
  Status on_done(std::function<void(const Status&)> callback) const;

  struct State;
  Work(uint64_t epoch, std::shared_ptr<State> state) noexcept : epoch_(epoch), state_(std::move(state)) {}

 private:
  friend class StreamRef;
  uint64_t epoch_ = 0;
  std::shared_ptr<State> state_;  // null: finished well before the call returned
};

}  // namespace shardcomm
