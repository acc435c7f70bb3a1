// How fast ordinary memory is read here, in the two ways that there are. Cross-memory attach copies once but pins every
// page in the kernel, which in a virtual machine can cost more than the second copy of a staging ring in the caches.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "memory/memory.h"

namespace shardcomm {
namespace {

constexpr size_t kCopyBytes = size_t{256} << 10;
constexpr size_t kRegionBytes = size_t{2} << 20;  // holds all buffers, and is a huge page where those come unasked
constexpr int kTries = 4;                         // the best counts: others of this machine start at the same time
constexpr double kPeersCache = 0.8;               // what is left of a copy's speed where a peer's cache holds the ring
constexpr double kColdPages = 0.7;  // of attach's, where what the kernel knows of the pages is in no cache

template <class Function>
double best_gbs(const Function& copy) {
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    if (!copy()) return 0;
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(kCopyBytes) / std::max(taken.count(), 1.0));
  }
  return best;
}

AccessSpeed measure() {
  void* const mapped =
      mmap(nullptr, 2 * kRegionBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return {};
  std::byte* const source = static_cast<std::byte*>(mapped) + -reinterpret_cast<uintptr_t>(mapped) % kRegionBytes;
  std::byte* const ring = source + kCopyBytes;
  std::byte* const target = ring + kCopyBytes;
  std::memset(source, 1, 3 * kCopyBytes);
  AccessSpeed speed;
  speed.attach_gbs = kColdPages * best_gbs([&] {
                       return read_peer(getpid(), target, reinterpret_cast<uint64_t>(source), kCopyBytes).ok();
                     });
  speed.staged_gbs = kPeersCache * best_gbs([&] {
                       std::memcpy(ring, source, kCopyBytes);
                       std::memcpy(target, ring, kCopyBytes);
                       asm volatile("" : : "r"(target) : "memory");  // somebody reads it
                       return true;
                     });
  munmap(mapped, 2 * kRegionBytes);
  return speed;
}

}  // namespace

AccessSpeed access_speed() {
  static const AccessSpeed measured = measure();
  return measured;
}

}  // namespace shardcomm
