// In which process something was made. A forked child inherits copies of everything, but neither its parent's threads
// nor its parent's place among the ranks: what speaks to peers asks its birthplace first. A load and a comparison; any
// thread. Forks that do without libc's fork() (a raw clone system call) go unnoticed.
#pragma once
#include <atomic>
#include <cstdint>

namespace shardcomm {

class Birthplace {
 public:
  Birthplace() noexcept;
  // False in a process that was forked after this was made.
  bool is_here() const noexcept { return forks_ == forks_so_far.load(std::memory_order_relaxed); }

 private:
  static std::atomic<uint64_t> forks_so_far;  // on the way from the first process to this one
  uint64_t forks_;
};

}  // namespace shardcomm
