// What this processor has.
#pragma once
#include <cstddef>

namespace shardcomm::kernels {

// Of the cache that the cores share; 32 MiB where the system does not tell.
size_t last_level_cache_bytes() noexcept;

}  // namespace shardcomm::kernels
