// Counts forks, in the child.
#include "base/birthplace.h"

#include <pthread.h>

namespace shardcomm {

std::atomic<uint64_t> Birthplace::forks_so_far{0};

Birthplace::Birthplace() noexcept {
  static const int watching =
      pthread_atfork(nullptr, nullptr, [] { forks_so_far.fetch_add(1, std::memory_order_relaxed); });
  (void)watching;
  forks_ = forks_so_far.load(std::memory_order_relaxed);
}

}  // namespace shardcomm
