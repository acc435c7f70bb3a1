// Hints to the processor, where it has them; without effect on what a program computes.
#pragma once

#include <sched.h>

#include <cstdint>

namespace shardcomm {

// The core that the thread runs on now, + 1; 0: unknown. A load where the kernel keeps it in memory (rseq).
inline uint32_t core_of_this_thread() noexcept { return static_cast<uint32_t>(sched_getcpu() + 1); }

#if defined(__x86_64__)
inline void pause() noexcept { __builtin_ia32_pause(); }
// A no-operation on processors that do not know it.
inline void fetch_to_write(const void* line) noexcept {
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(line)));
}
#elif defined(__aarch64__)
inline void pause() noexcept { asm volatile("isb" ::: "memory"); }
inline void fetch_to_write(const void* line) noexcept { __builtin_prefetch(line, 1); }
#else
inline void pause() noexcept { asm volatile("" ::: "memory"); }
inline void fetch_to_write(const void* line) noexcept { __builtin_prefetch(line, 1); }
#endif

}  // namespace shardcomm
