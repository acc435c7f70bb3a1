// Who is next: the calls on one communicator take their places one after the other, whatever threads they come from.
//
// A place is taken in well under a microsecond, and nearly always without a competitor, so that takes one atomic
// exchange: a release store gives the lock back, and a thread that finds it taken polls, then yields, then sleeps for
// some microseconds at a time. Creating windows and communicators takes several exchanges that no other call may come
// between. It reserves the communicator, for as long as the peers take, and other threads sleep until it has ended.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>

namespace shardcomm {

// Any thread. Waiting here is bounded by the limits of what the thread that holds the communicator waits for.
class CallOrder {
 public:
  // Held while a call takes its epoch, is recorded, and is put into its stream. The thread that has reserved the
  // communicator already holds it.
  class Place {
   public:
    explicit Place(CallOrder& order) noexcept : order_(order), is_nested_(order.take(kPlace)) {}
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place() {
      if (!is_nested_) order_.word_.store(kFree, std::memory_order_release);
    }

   private:
    CallOrder& order_;
    const bool is_nested_;
  };

  // Held by a call that consists of several operations. May be nested.
  class Reservation {
   public:
    explicit Reservation(CallOrder& order) noexcept;
    Reservation(const Reservation&) = delete;
    Reservation& operator=(const Reservation&) = delete;
    ~Reservation();

   private:
    CallOrder& order_;
    const bool is_nested_;
  };

 private:
  enum : uint32_t { kFree, kPlace, kReserved };
  // Returns whether this thread had reserved it already.
  bool take(uint32_t state) noexcept {
    uint32_t free = kFree;
    return !word_.compare_exchange_strong(free, state, std::memory_order_acquire, std::memory_order_relaxed) &&
           wait_and_take(state);
  }
  bool wait_and_take(uint32_t state) noexcept;

  std::atomic<uint32_t> word_{kFree};
  std::atomic<std::thread::id> owner_{};  // of the reservation
};

}  // namespace shardcomm
