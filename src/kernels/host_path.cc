#include "kernels/host_path.h"

#include <atomic>

#include "kernels/cpu.h"

namespace shardcomm::kernels {
namespace {

const HostPath& best_path() noexcept {
  for (const HostPath& path : host_paths()) {
    if (path.runs_here()) return path;
  }
  return host_paths().back();
}

// Beyond three quarters of the last-level cache a written line is evicted before anyone reads it back, and stores that
// go past the caches save the read of the line they replace. Measured on Zen 3; flat within a factor of two.
size_t held_traffic_bytes() noexcept { return last_level_cache_bytes() / 4 * 3; }

std::atomic<const HostPath*> overriding_path = nullptr;
std::atomic<size_t> overriding_large_bytes = 0;

}  // namespace

const HostPath& host_path() noexcept {
  static const HostPath& best = best_path();
  const HostPath* other = overriding_path.load(std::memory_order_relaxed);
  return other != nullptr ? *other : best;
}

bool exceeds_caches(size_t traffic_bytes) noexcept {
  static const size_t large_bytes = held_traffic_bytes();
  const bool overridden = overriding_path.load(std::memory_order_relaxed) != nullptr;
  return traffic_bytes > (overridden ? overriding_large_bytes.load(std::memory_order_relaxed) : large_bytes);
}

HostPathOverride::HostPathOverride(const HostPath& path, size_t large_bytes) noexcept {
  overriding_large_bytes = large_bytes;
  overriding_path = &path;
}

HostPathOverride::~HostPathOverride() { overriding_path = nullptr; }

}  // namespace shardcomm::kernels

std::string_view shardcomm::host_kernels() noexcept { return kernels::host_path().name; }
