// What a host stream's handle points at.
#pragma once
#include <memory>
#include <thread>

#include "device/host_queue.h"
#include "shardcomm/stream.h"

namespace shardcomm {

struct HostStream::Impl {
  explicit Impl(std::string_view name) : queue(std::make_shared<HostQueue>(name)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();  // drains, then joins

  std::shared_ptr<HostQueue> queue;  // shared with the events recorded on it
  std::thread thread;
};

// Of a host stream that is not the caller stream.
inline const std::shared_ptr<HostQueue>& queue_of(StreamRef stream) noexcept {
  return static_cast<HostStream::Impl*>(stream.native())->queue;
}

}  // namespace shardcomm
