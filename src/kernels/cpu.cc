#include "kernels/cpu.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <initializer_list>

namespace shardcomm::kernels {
namespace {

// Of the caches that core 0 reaches, as the kernel tells it: "32768K". 0: it does not.
size_t told_by_kernel() {
  size_t largest = 0;
  for (int i = 0;; ++i) {
    char path[64];
    std::snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
    std::FILE* const file = std::fopen(path, "re");
    if (file == nullptr) return largest;
    size_t kibibytes = 0;
    char unit = 0;
    if (std::fscanf(file, "%zu%c", &kibibytes, &unit) == 2 && unit == 'K') largest = std::max(largest, kibibytes << 10);
    std::fclose(file);
  }
}

// On processors with several last-level caches the C library may add them up.
size_t told_by_library() {
  for (const int level : {_SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    if (const long bytes = sysconf(level); bytes > 0) return static_cast<size_t>(bytes);
  }
  return 0;
}

}  // namespace

size_t last_level_cache_bytes() noexcept {
  if (const size_t bytes = told_by_kernel(); bytes != 0) return bytes;
  if (const size_t bytes = told_by_library(); bytes != 0) return bytes;
  return size_t{32} << 20;
}

}  // namespace shardcomm::kernels
