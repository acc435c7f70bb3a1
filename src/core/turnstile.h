// Lets the operations of one communicator through in the order of their epochs, whatever threads they run on.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/time_limit.h"
#include "transport/transport.h"

namespace shardcomm {

// Any thread; each epoch enters once, and leaves if it could enter. One that could not, because the communicator has
// failed or fails by this, gives up: its place stays taken, so that no later one runs beside an earlier one.
class Turnstile {
 public:
  // Until every epoch before `epoch` has left, or the communicator has failed.
  Status enter(uint64_t epoch, TimeLimit& limit, const Control& control) noexcept {
    if (passed() + 1 < epoch) SHARDCOMM_TRY(sleep(epoch, limit, control));
    begun_.store(epoch, std::memory_order_relaxed);
    return {};
  }
  // Sequentially consistent: either a sleeper sees what has passed before it sleeps, or this sees the sleeper.
  void leave(uint64_t epoch) noexcept {
    passed_.store(epoch, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) wake();
  }
  // After the communicator's failure has been recorded: those that wait look for it.
  void give_up() noexcept { wake(); }
  uint64_t passed() const noexcept { return passed_.load(std::memory_order_acquire); }

 private:
  Status sleep(uint64_t epoch, TimeLimit& limit, const Control& control) noexcept;
  void wake() noexcept;
  std::atomic<uint64_t> passed_{0};
  std::atomic<uint64_t> begun_{0};  // the operation whose turn it is, or was
  std::atomic<uint32_t> bell_{0};   // changes when a thread sleeps while another leaves
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace shardcomm
