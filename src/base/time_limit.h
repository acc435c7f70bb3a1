// The limit of one operation. It begins to run when the operation first has to wait: what never waits cannot be late,
// and reading the clock would take a tenth of a small operation's time. One thread at a time.
#pragma once
#include <chrono>

#include "shardcomm/types.h"

namespace shardcomm {

class TimeLimit {
 public:
  explicit TimeLimit(std::chrono::nanoseconds limit) noexcept : limit_(limit) {}

  Deadline deadline() noexcept {
    if (deadline_ == Deadline::max()) deadline_ = std::chrono::steady_clock::now() + limit_;
    return deadline_;
  }
  void renew() noexcept { deadline_ = Deadline::max(); }  // begins to run anew

 private:
  std::chrono::nanoseconds limit_;
  Deadline deadline_ = Deadline::max();
};

}  // namespace shardcomm
