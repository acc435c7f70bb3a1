// Sleeping in the kernel until a 32-bit word changes. The word may lie in memory shared by processes, so these are the
// shared (not the private) futexes. The usual protocol: read the word, decide to sleep, futex_wait(word, what was
// read); the other side changes the word first and then wakes. Any thread.
#pragma once
#include <atomic>
#include <cstdint>

#include "shardcomm/types.h"

namespace shardcomm {

static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);

// kWoken may be spurious (a signal handler ran, too): look at the word again.
enum class FutexResult { kWoken, kChanged, kTimedOut };

// Sleeps while *word == expected, until woken or the deadline.
FutexResult futex_wait(const std::atomic<uint32_t>* word, uint32_t expected, Deadline deadline) noexcept;

// Wakes up to `count` sleepers of any process that maps the word; gives how many there were.
int futex_wake(const std::atomic<uint32_t>* word, int count) noexcept;

inline constexpr int kWakeAll = 0x7fffffff;

}  // namespace shardcomm
