// The plainest fast loops for moving memory: what collectives are measured against. Written without the library's
// kernels.
#pragma once
#include <cstddef>
#include <span>

namespace shardcomm::tools {

// Two ways to store: through the cache, or past it, which saves reading what is overwritten and leaves the cache to
// others. Which one is faster depends on the size; a limit is the better of both.
enum class Stores { kCached, kStreaming };
constexpr Stores kStores[] = {Stores::kCached, Stores::kStreaming};

// Neither may overlap. kStreaming is kCached where the processor has no such stores.
void stream_copy(std::byte* to, const std::byte* from, size_t bytes, Stores stores);

// to[i] = sum of the sources' [i], f32 in their order, over bytes / 4 elements; `to` may be one of the sources.
void stream_add(std::byte* to, std::span<const std::byte* const> sources, size_t bytes, Stores stores);

}  // namespace shardcomm::tools
