// Copies larger than the caches, with stores that go past them: the target's lines are not read first.
// SSE2 suffices, because what counts is that a line is written whole.
#include <emmintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/host_path.h"

namespace shardcomm::kernels {
namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kAheadBytes = 1024;

void stream_line(std::byte* target, const std::byte* source) {
  const auto* from = reinterpret_cast<const __m128i*>(source);
  auto* to = reinterpret_cast<__m128i*>(target);
  // An address, not a pointer: it may lie beyond the source, where fetching ahead does nothing.
  _mm_prefetch(reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(source) + kAheadBytes), _MM_HINT_T0);
  const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
  const __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
  _mm_stream_si128(to, a);
  _mm_stream_si128(to + 1, b);
  _mm_stream_si128(to + 2, c);
  _mm_stream_si128(to + 3, d);
}

}  // namespace

void copy_streaming(std::byte* target, const std::byte* source, size_t bytes) {
  const size_t head = -reinterpret_cast<uintptr_t>(target) % kLineBytes;
  if (bytes < head + kLineBytes) {
    std::memcpy(target, source, bytes);
    return;
  }
  std::memcpy(target, source, head);
  size_t done = head;
  for (; done + kLineBytes <= bytes; done += kLineBytes) stream_line(target + done, source + done);
  _mm_sfence();  // streaming stores are not ordered before a signal otherwise
  std::memcpy(target + done, source + done, bytes - done);
}

}  // namespace shardcomm::kernels
