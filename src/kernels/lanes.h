// Lanes: fixed-size vectors as GCC and Clang offer them, so that one text serves SSE2, AVX2 and NEON.
// Everything here and in the headers built on it is inlined by force: a copy that was compiled with AVX2 must never be
// the one the linker keeps for the portable path.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#define SHARDCOMM_LANES [[gnu::always_inline]] inline

namespace shardcomm::kernels {

template <class T, size_t kBytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kBytes)));
};
template <class T, size_t kBytes>
using Vector = typename VectorOf<T, kBytes>::Type;

// The element of a vector type.
template <class V>
using Lane = std::remove_cvref_t<decltype(std::declval<V&>()[0])>;

// Any address: no alignment is assumed.
template <class V>
SHARDCOMM_LANES V load_lanes(const std::byte* from) {
  V value;
  __builtin_memcpy(&value, from, sizeof(V));
  return value;
}

template <class V>
SHARDCOMM_LANES void store_lanes(std::byte* to, V value) {
  __builtin_memcpy(to, &value, sizeof(V));
}

}  // namespace shardcomm::kernels
