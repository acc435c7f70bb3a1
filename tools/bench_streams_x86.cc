// x86-64: AVX2 where the processor has it, chosen at run time; else what the compiler makes of plain loops.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "tools/bench_streams.h"

namespace shardcomm::tools {
namespace {

#define SHARDCOMM_AVX2 __attribute__((target("avx2")))

constexpr size_t kVector = 32;         // bytes
constexpr size_t kStep = 4 * kVector;  // bytes of a round: two cache lines
constexpr size_t kAhead = 512;         // bytes to prefetch before they are read

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

size_t to_alignment(const std::byte* at) { return (kVector - reinterpret_cast<uintptr_t>(at) % kVector) % kVector; }

SHARDCOMM_AVX2 __m256i load(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

SHARDCOMM_AVX2 void copy_past_cache(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t head = to_alignment(to) < bytes ? to_alignment(to) : bytes;
  std::memcpy(to, from, head);
  size_t at = head;
  for (; at + kStep <= bytes; at += kStep) {
    _mm_prefetch(reinterpret_cast<const char*>(from + at + kAhead), _MM_HINT_NTA);
    _mm_prefetch(reinterpret_cast<const char*>(from + at + kAhead + 64), _MM_HINT_NTA);
    __m256i values[4];
    for (size_t i = 0; i < 4; ++i) values[i] = load(from + at + i * kVector);
    for (size_t i = 0; i < 4; ++i) _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + i * kVector), values[i]);
  }
  std::memcpy(to + at, from + at, bytes - at);
  _mm_sfence();
}

// Two sources keep their pointers in registers, the case of two ranks; any number goes through the table of them.
template <bool kPastCache, bool kTwo>
SHARDCOMM_AVX2 size_t add_steps(std::byte* to, std::span<const std::byte* const> sources, size_t bytes) {
  const std::byte* first = sources[0];
  const std::byte* second = kTwo ? sources[1] : nullptr;
  size_t at = 0;
  for (; at + kStep <= bytes; at += kStep) {
    __m256 sums[4];
    for (size_t i = 0; i < 4; ++i) sums[i] = _mm256_castsi256_ps(load(first + at + i * kVector));
    if constexpr (kTwo) {
      for (size_t i = 0; i < 4; ++i)
        sums[i] = _mm256_add_ps(sums[i], _mm256_castsi256_ps(load(second + at + i * kVector)));
    } else {
      for (const std::byte* source : sources.subspan(1)) {
        for (size_t i = 0; i < 4; ++i)
          sums[i] = _mm256_add_ps(sums[i], _mm256_castsi256_ps(load(source + at + i * kVector)));
      }
    }
    for (size_t i = 0; i < 4; ++i) {
      float* target = reinterpret_cast<float*>(to + at + i * kVector);
      if constexpr (kPastCache)
        _mm256_stream_ps(target, sums[i]);
      else
        _mm256_storeu_ps(target, sums[i]);
    }
  }
  if constexpr (kPastCache) _mm_sfence();
  return at;
}

void add_one_by_one(std::byte* to, std::span<const std::byte* const> sources, size_t at, size_t bytes) {
  for (; at < bytes; at += sizeof(float)) {
    const size_t part = bytes - at < sizeof(float) ? bytes - at : sizeof(float);
    float sum = 0;
    for (const std::byte* source : sources) {
      float value = 0;
      std::memcpy(&value, source + at, part);
      sum += value;
    }
    std::memcpy(to + at, &sum, part);
  }
}

}  // namespace

void stream_copy(std::byte* to, const std::byte* from, size_t bytes, Stores stores) {
  if (stores == Stores::kStreaming && has_avx2())
    copy_past_cache(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

void stream_add(std::byte* to, std::span<const std::byte* const> sources, size_t bytes, Stores stores) {
  size_t done = 0;
  if (has_avx2()) {
    // Stores past the cache need alignment, which the elements of a shifted buffer do not have.
    const bool past_cache = stores == Stores::kStreaming && to_alignment(to) == 0;
    const bool two = sources.size() == 2;
    const auto steps = past_cache ? (two ? add_steps<true, true> : add_steps<true, false>)
                                  : (two ? add_steps<false, true> : add_steps<false, false>);
    done = steps(to, sources, bytes);
  }
  add_one_by_one(to, sources, done, bytes);
}

}  // namespace shardcomm::tools
