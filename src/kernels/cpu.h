// What this processor has.
#pragma once
#include <cstddef>

namespace shardcomm::kernels {

// Of one such cache, where a machine has several; 32 MiB where the system does not tell.
size_t last_level_cache_bytes() noexcept;

}  // namespace shardcomm::kernels
