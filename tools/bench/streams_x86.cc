// x86-64: AVX2 where the processor has it, chosen at run time; else what the compiler makes of plain loops.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "tools/bench/streams.h"

namespace shardcomm::tools {
namespace {

#define SHARDCOMM_AVX2 __attribute__((target("avx2")))

constexpr size_t kVector = 32;                // bytes
constexpr size_t kVectors = 8;                // of a round: half the registers
constexpr size_t kStep = kVectors * kVector;  // bytes of a round: four cache lines of a source, then of the next
constexpr size_t kFetchAhead = 1024;          // bytes between what is read and what is fetched for later

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

size_t to_alignment(const std::byte* at) { return (kVector - reinterpret_cast<uintptr_t>(at) % kVector) % kVector; }

// What is compiled for AVX2 says so in its name, which the test `baseline` looks for.
namespace avx2 {

SHARDCOMM_AVX2 __m256i load(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

// kLocality as of __builtin_prefetch: 3 into all caches, 0 into the nearest alone.
template <int kLocality>
void fetch(const std::byte* at) {
  for (size_t line = 0; line < kStep; line += 64) __builtin_prefetch(at + line, 0, kLocality);
}

template <bool kPastCache>
SHARDCOMM_AVX2 void copy_steps(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t head = to_alignment(to) < bytes ? to_alignment(to) : bytes;
  std::memcpy(to, from, head);
  size_t at = head;
  for (; at + kStep <= bytes; at += kStep) {
    fetch<kPastCache ? 0 : 3>(from + at + kFetchAhead);
    __m256i values[kVectors];
#pragma GCC unroll 8
    for (size_t i = 0; i < kVectors; ++i) values[i] = load(from + at + i * kVector);
#pragma GCC unroll 8
    for (size_t i = 0; i < kVectors; ++i) {
      auto* const target = reinterpret_cast<__m256i*>(to + at + i * kVector);
      if constexpr (kPastCache)
        _mm256_stream_si256(target, values[i]);
      else
        _mm256_store_si256(target, values[i]);
    }
  }
  std::memcpy(to + at, from + at, bytes - at);
  if constexpr (kPastCache) _mm_sfence();
}

// Two sources keep their pointers in registers, the case of two ranks; any number goes through the table of them.
template <Loop kLoop, bool kTwo>
SHARDCOMM_AVX2 size_t add_steps(std::byte* to, std::span<const std::byte* const> sources, size_t bytes) {
  const std::byte* first = sources[0];
  const std::byte* second = kTwo ? sources[1] : nullptr;
  size_t at = 0;
  for (; at + kStep <= bytes; at += kStep) {
    if constexpr (kLoop != Loop::kPlain) {
      for (const std::byte* source : sources) fetch<3>(source + at + kFetchAhead);
    }
    __m256 sums[kVectors];
#pragma GCC unroll 8
    for (size_t i = 0; i < kVectors; ++i) sums[i] = _mm256_castsi256_ps(load(first + at + i * kVector));
    if constexpr (kTwo) {
#pragma GCC unroll 8
      for (size_t i = 0; i < kVectors; ++i)
        sums[i] = _mm256_add_ps(sums[i], _mm256_castsi256_ps(load(second + at + i * kVector)));
    } else {
      for (const std::byte* source : sources.subspan(1)) {
#pragma GCC unroll 8
        for (size_t i = 0; i < kVectors; ++i)
          sums[i] = _mm256_add_ps(sums[i], _mm256_castsi256_ps(load(source + at + i * kVector)));
      }
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < kVectors; ++i) {
      float* target = reinterpret_cast<float*>(to + at + i * kVector);
      if constexpr (kLoop == Loop::kStreaming)
        _mm256_stream_ps(target, sums[i]);
      else
        _mm256_storeu_ps(target, sums[i]);
    }
  }
  if constexpr (kLoop == Loop::kStreaming) _mm_sfence();
  return at;
}

using AddSteps = size_t (*)(std::byte*, std::span<const std::byte* const>, size_t);
template <bool kTwo>
constexpr AddSteps kAddSteps[] = {add_steps<Loop::kPlain, kTwo>, add_steps<Loop::kAhead, kTwo>,
                                  add_steps<Loop::kStreaming, kTwo>};

// What is left over, by vectors, floats, and bytes of none.
SHARDCOMM_AVX2 size_t add_vectors(std::byte* to, std::span<const std::byte* const> sources, size_t at, size_t bytes) {
  for (; at + kVector <= bytes; at += kVector) {
    __m256 sum = _mm256_castsi256_ps(load(sources[0] + at));
    for (const std::byte* source : sources.subspan(1)) sum = _mm256_add_ps(sum, _mm256_castsi256_ps(load(source + at)));
    _mm256_storeu_ps(reinterpret_cast<float*>(to + at), sum);
  }
  return at;
}

}  // namespace avx2

void add_floats(std::byte* to, std::span<const std::byte* const> sources, size_t at, size_t bytes) {
  for (; at + sizeof(float) <= bytes; at += sizeof(float)) {
    float sum = 0;
    for (const std::byte* source : sources) {
      float value = 0;
      std::memcpy(&value, source + at, sizeof value);
      sum += value;
    }
    std::memcpy(to + at, &sum, sizeof sum);
  }
  std::memmove(to + at, sources[0] + at, bytes - at);
}

}  // namespace

void stream_copy(std::byte* to, const std::byte* from, size_t bytes, Loop loop) {
  if (loop == Loop::kPlain || !has_avx2())
    std::memcpy(to, from, bytes);
  else if (loop == Loop::kAhead)
    avx2::copy_steps<false>(to, from, bytes);
  else
    avx2::copy_steps<true>(to, from, bytes);
}

void stream_add(std::byte* to, std::span<const std::byte* const> sources, size_t bytes, Loop loop) {
  size_t done = 0;
  if (has_avx2()) {
    // Stores past the cache need alignment, which the elements of a shifted buffer do not have.
    if (loop == Loop::kStreaming && to_alignment(to) != 0) loop = Loop::kAhead;
    const auto number = static_cast<size_t>(loop);
    done = (sources.size() == 2 ? avx2::kAddSteps<true> : avx2::kAddSteps<false>)[number](to, sources, bytes);
    done = avx2::add_vectors(to, sources, done, bytes);
  }
  add_floats(to, sources, done, bytes);
}

}  // namespace shardcomm::tools
