// The host reduction for x86-64 with AVX2 and F16C; this file alone is compiled with both.
#include <immintrin.h>

#include "kernels/host_path.h"
#include "kernels/reduce_table.h"

namespace shardcomm::kernels {
namespace {

// f16 by the conversion instructions: 8 neighbours to a part.
template <class Isa>
struct ConvertedF16Block {
  using Path = Isa;
  using Accumulator = Vector<float, 32>;
  static constexpr size_t kParts = 2;
  static constexpr size_t kElementBytes = 2;
  static constexpr size_t kElements = 16;

  struct Parts {
    Accumulator part[kParts];
  };

  SHARDCOMM_LANES static Parts load(const std::byte* from) {
    return {{_mm256_cvtph_ps(load_lanes<__m128i>(from)), _mm256_cvtph_ps(load_lanes<__m128i>(from + 16))}};
  }

  SHARDCOMM_LANES static __m256i pack(const Parts& parts) {
    return _mm256_set_m128i(narrow(parts.part[1]), narrow(parts.part[0]));
  }

  SHARDCOMM_LANES static __m128i narrow(Accumulator value) {
    const Accumulator nan = __builtin_bit_cast(Accumulator, splat<Vector<uint32_t, 32>>(kF32Nan));
    return _mm256_cvtps_ph(value == value ? value : nan, _MM_FROUND_TO_NEAREST_INT);
  }
};

struct Avx2 {
  static constexpr size_t kVectorBytes = 32;
  static constexpr bool kStreams = true;
  using F16Block = ConvertedF16Block<Avx2>;

  // `to` is aligned to kVectorBytes.
  template <class V>
  SHARDCOMM_LANES static void stream(std::byte* to, V value) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), __builtin_bit_cast(__m256i, value));
  }
  // Streaming stores are not ordered with the signal that follows them unless fenced.
  SHARDCOMM_LANES static void stream_fence() { _mm_sfence(); }
};

}  // namespace

HostReduceFunction find_reduce_avx2(DType dtype, ReduceOp op) { return find_reduce<Avx2>(dtype, op); }

}  // namespace shardcomm::kernels
