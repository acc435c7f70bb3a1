// Lets the operations of one communicator through in the order of their epochs, whatever threads they run on.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/time_limit.h"
#include "transport/transport.h"

namespace shardcomm {

// Any thread; each epoch enters and leaves once.
class Turnstile {
 public:
  // Until every epoch before `epoch` has left, or the communicator has failed.
  Status enter(uint64_t epoch, TimeLimit& limit, const Control& control) noexcept;
  void leave(uint64_t epoch) noexcept;
  uint64_t passed() const noexcept { return passed_.load(std::memory_order_acquire); }

 private:
  Status sleep(uint64_t epoch, TimeLimit& limit, const Control& control) noexcept;
  std::atomic<uint64_t> passed_{0};
  std::atomic<uint64_t> begun_{0};  // the operation whose turn it is, or was
  std::atomic<uint32_t> bell_{0};   // changes when a thread sleeps while another leaves
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace shardcomm
