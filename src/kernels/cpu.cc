#include "kernels/cpu.h"

#include <unistd.h>

#include <initializer_list>

namespace shardcomm::kernels {

size_t last_level_cache_bytes() noexcept {
  for (const int level : {_SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    if (const long bytes = sysconf(level); bytes > 0) return static_cast<size_t>(bytes);
  }
  return size_t{32} << 20;
}

}  // namespace shardcomm::kernels
