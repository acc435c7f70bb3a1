// The plainest fast loops for moving memory: what collectives are measured against. Written without the library's
// kernels.
#pragma once
#include <cstddef>
#include <span>

namespace shardcomm::tools {

// Which loop is fastest depends on the size and the processor; a limit is the best of all. kPlain: what the C library
// or the compiler has. kAhead: fetches what it will read soon. kStreaming: stores past the cache, which saves reading
// what is overwritten and leaves the cache to others. All are kPlain where the processor has nothing better.
enum class Loop { kPlain, kAhead, kStreaming };
constexpr Loop kLoops[] = {Loop::kPlain, Loop::kAhead, Loop::kStreaming};

// They may not overlap.
void stream_copy(std::byte* to, const std::byte* from, size_t bytes, Loop loop);

// to[i] = sum of the sources' [i], f32 in their order, over bytes / 4 elements; `to` may be one of the sources.
void stream_add(std::byte* to, std::span<const std::byte* const> sources, size_t bytes, Loop loop);

}  // namespace shardcomm::tools
