// The small floating formats, to and from f32, by integer arithmetic: exact, rounded to nearest even, subnormals right,
// independent of the processor's flush-to-zero modes.
//   f16 and f8e5m2  IEEE 754 shapes: overflow goes to infinity.
//   bf16            the upper half of an f32.
//   f8e4m3          the OCP "fn" shape: no infinities, largest finite value 448, S.1111.111 is NaN. What rounds beyond
//                   448 becomes NaN, infinities included; it does not saturate. (The tie 464 goes to 448.)
// NaN stays NaN with its sign and as much of its payload as fits, and becomes quiet, as the F16C instructions do; or
// every NaN that results becomes the canonical one (NanRule).
// U is uint32_t, or a vector of them: then each lane is one number. Patterns stand in the low bits of U.
#pragma once
#include <cstdint>

#include "kernels/lanes.h"

namespace shardcomm::kernels {

template <class U>
struct FloatsOf {  // vectors
  using Type = Vector<float, sizeof(U)>;
};
template <>
struct FloatsOf<uint32_t> {
  using Type = float;
};
template <class U>
using Floats = typename FloatsOf<U>::Type;

// As signed numbers, because x86 compares only those in one instruction; all magnitudes are below 2^31.
template <class U>
struct SignedOf {
  using Type = Vector<int32_t, sizeof(U)>;
};
template <>
struct SignedOf<uint32_t> {
  using Type = int32_t;
};
template <class U>
using Signed = typename SignedOf<U>::Type;

template <class U>
SHARDCOMM_LANES constexpr U splat(uint32_t value) {
  return U{} + value;
}
template <class U>
SHARDCOMM_LANES constexpr auto less(U a, uint32_t b) {
  return __builtin_bit_cast(Signed<U>, a) < __builtin_bit_cast(Signed<U>, splat<U>(b));
}
template <class U>
SHARDCOMM_LANES constexpr auto greater(U a, uint32_t b) {
  return __builtin_bit_cast(Signed<U>, a) > __builtin_bit_cast(Signed<U>, splat<U>(b));
}

// Of the f32 with these bits: one comparison, where integers would need two operations.
template <class U>
SHARDCOMM_LANES constexpr auto is_nan(U bits) {
  const Floats<U> value = __builtin_bit_cast(Floats<U>, bits);
  return value != value;
}

// What NaN results from_f32 gives.
enum class NanRule : uint8_t { kKeep, kCanonical };

inline constexpr uint32_t kF32Infinity = 0x7f800000;
inline constexpr uint32_t kF32Quiet = 0x00400000;
// The canonical NaN of every format: all bits set but the sign. It is the NaN that GPU arithmetic makes of itself.
inline constexpr uint32_t kF32Nan = 0x7fffffff;

// kExponent + kMantissa + 1 bits, IEEE-like with subnormals.
template <int kExponentBits, int kMantissaBits, bool kHasInfinities>
struct SmallFloat {
  static constexpr int kWidth = 1 + kExponentBits + kMantissaBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kShift = 23 - kMantissaBits;  // between the two mantissas
  static constexpr uint32_t kMagnitude = (1u << (kWidth - 1)) - 1;
  static constexpr uint32_t kNan = kMagnitude;
  static constexpr uint32_t kInfinity = kMagnitude & ~((1u << kMantissaBits) - 1);
  static constexpr uint32_t kOverflow = kHasInfinities ? kInfinity : kNan;
  // An f32 whose unit in the last place is the smallest subnormal: adding it rounds to a multiple of that.
  static constexpr uint32_t kAnchor = static_cast<uint32_t>(127 + 24 - kBias - kMantissaBits) << 23;
  static constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - kBias) << 23;  // as f32
  static constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias);

  // The bits of the f32 that equals the pattern.
  template <class U>
  SHARDCOMM_LANES static constexpr U to_f32(U pattern) {
    const U magnitude = pattern & kMagnitude;
    const U sign = (pattern >> (kWidth - 1)) << 31;
    const U wide = magnitude << kShift;
    const U normal = wide + (kRebias << 23);
    const U subnormal = __builtin_bit_cast(
        U, __builtin_bit_cast(Floats<U>, magnitude | kAnchor) - __builtin_bit_cast(Floats<U>, splat<U>(kAnchor)));
    const U finite = less(magnitude, 1u << kMantissaBits) ? subnormal : normal;
    if constexpr (kHasInfinities) {
      const U nan = wide | (kF32Infinity | kF32Quiet);
      const U special = greater(magnitude, kInfinity) ? nan : splat<U>(kF32Infinity);
      return sign | (less(magnitude, kInfinity) ? finite : special);
    } else {
      return sign | (less(magnitude, kNan) ? finite : splat<U>(kF32Infinity | kF32Quiet));
    }
  }

  // The pattern nearest to the f32 with these bits.
  template <NanRule kNanRule = NanRule::kKeep, class U>
  SHARDCOMM_LANES static constexpr U from_f32(U bits) {
    const U magnitude = bits & 0x7fffffffu;
    const U sign = (bits >> 31) << (kWidth - 1);
    const U odd = (magnitude >> kShift) & 1u;
    const U rounded = ((magnitude + ((1u << (kShift - 1)) - 1) + odd) >> kShift) - (kRebias << kMantissaBits);
    const U normal = greater(rounded, kOverflow) ? splat<U>(kOverflow) : rounded;
    const U subnormal = __builtin_bit_cast(U, __builtin_bit_cast(Floats<U>, magnitude) +
                                                  __builtin_bit_cast(Floats<U>, splat<U>(kAnchor))) -
                        kAnchor;
    const U number = sign | (less(magnitude, kSmallestNormal) ? subnormal : normal);
    if constexpr (kNanRule == NanRule::kCanonical) {
      return becomes_nan(bits, rounded) ? splat<U>(kNan) : number;
    } else {
      const U payload = kHasInfinities ? (magnitude >> kShift) & kMagnitude & ~kInfinity : splat<U>(kNan);
      const U nan = payload | (kInfinity | (1u << (kMantissaBits - 1)));
      return is_nan(bits) ? sign | nan : number;
    }
  }

 private:
  // Without infinities, what is too large rounds to NaN just as NaNs do.
  template <class U>
  SHARDCOMM_LANES static constexpr auto becomes_nan(U bits, U rounded) {
    if constexpr (kHasInfinities) {
      return is_nan(bits);
    } else {
      return greater(rounded, kNan - 1);
    }
  }
};

using F16 = SmallFloat<5, 10, true>;
using F8E4M3 = SmallFloat<4, 3, false>;
using F8E5M2 = SmallFloat<5, 2, true>;

struct BF16 {
  static constexpr int kWidth = 16;
  static constexpr uint32_t kNan = 0x7fff;

  template <class U>
  SHARDCOMM_LANES static constexpr U to_f32(U pattern) {
    return pattern << 16;
  }

  template <NanRule kNanRule = NanRule::kKeep, class U>
  SHARDCOMM_LANES static constexpr U from_f32(U bits) {
    return round<kNanRule>(bits) >> 16;
  }

  // The rounded pattern in the upper half; the lower half is unspecified.
  template <NanRule kNanRule, class U>
  SHARDCOMM_LANES static constexpr U round(U bits) {
    const U odd = (bits >> 16) & 1u;
    const U rounded = bits + 0x7fffu + odd;
    const U nan = kNanRule == NanRule::kCanonical ? splat<U>(kNan << 16) : bits | kF32Quiet;
    return is_nan(bits) ? nan : rounded;
  }
};

}  // namespace shardcomm::kernels
