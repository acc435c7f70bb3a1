#include "tools/bench/values.h"

#include <bit>
#include <cstring>
#include <type_traits>

namespace shardcomm::tools {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014) as a hash of (seed, rank, index).
uint64_t hash(uint64_t stream, uint64_t index) {
  uint64_t z = stream + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

uint64_t stream_of(const BenchValues& values, Rank rank) {
  return hash(values.seed, 0x10000u + static_cast<uint64_t>(rank));
}

template <class T>
struct Integer {
  using Bits = T;
  using Sum = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  static Bits random(uint64_t h) { return static_cast<T>(h); }
  static Sum decode(Bits bits) { return bits; }
  static Bits encode(Sum sum) { return static_cast<T>(sum); }
  // Modulo 2^64, which the narrowing of encode() takes to modulo 2^bits.
  static Sum add(Sum a, Sum b) { return static_cast<Sum>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }
  static Sum multiply(Sum a, Sum b) { return static_cast<Sum>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }
};

struct Truth : Integer<uint8_t> {
  static Bits random(uint64_t h) { return static_cast<uint8_t>(h & 1); }
};

// An IEEE-like format in its bits: sign, exponent, mantissa. Neither infinities nor NaNs occur here.
template <class BitsT, class SumT, int kExponentBits, int kMantissaBits>
struct Float {
  using Bits = BitsT;
  using Sum = SumT;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr Bits kMantissaMask = static_cast<Bits>((Bits{1} << kMantissaBits) - 1);

  static Bits random(uint64_t h) {
    const uint64_t exponent = static_cast<uint64_t>(kBias) - (h >> 62 & 1);
    return static_cast<Bits>((h >> 63) << (kExponentBits + kMantissaBits) | exponent << kMantissaBits |
                             (h & kMantissaMask));
  }

  static Sum decode(Bits bits) {
    if constexpr (sizeof(Bits) == sizeof(Sum)) {
      return std::bit_cast<Sum>(bits);
    } else {  // into an f32: random() makes no subnormals, so the exponent only changes its bias
      const uint32_t sign = static_cast<uint32_t>(bits >> (kExponentBits + kMantissaBits)) << 31;
      const uint32_t exponent = (bits >> kMantissaBits & ((1u << kExponentBits) - 1)) + 127 - kBias;
      const uint32_t mantissa = static_cast<uint32_t>(bits & kMantissaMask) << (23 - kMantissaBits);
      return std::bit_cast<float>(sign | exponent << 23 | mantissa);
    }
  }

  static Bits encode(Sum sum) {
    if constexpr (sizeof(Bits) == sizeof(Sum)) {
      return std::bit_cast<Bits>(sum);
    } else {
      return round(std::bit_cast<uint32_t>(sum));
    }
  }

  static Sum add(Sum a, Sum b) { return a + b; }
  static Sum multiply(Sum a, Sum b) { return a * b; }

 private:
  // An f32 to this format, to nearest even; what is below the normal range loses mantissa bits.
  static Bits round(uint32_t f32) {
    const Bits sign = static_cast<Bits>(f32 >> 31 << (kExponentBits + kMantissaBits));
    if ((f32 & 0x7FFFFFFF) == 0) return sign;
    const int exponent = static_cast<int>(f32 >> 23 & 0xFF) - 127 + kBias;
    const uint32_t mantissa = (f32 & 0x7FFFFF) | 0x800000;
    const int dropped = 23 - kMantissaBits + (exponent <= 0 ? 1 - exponent : 0);
    if (dropped > 24) return sign;
    const uint32_t half_minus_one = (1u << (dropped - 1)) - 1;
    const uint32_t kept = (mantissa + half_minus_one + (mantissa >> dropped & 1)) >> dropped;
    // Adding lets a carry out of the mantissa raise the exponent, which the hidden bit has raised by one already.
    const uint32_t biased = exponent <= 0 ? 0 : static_cast<uint32_t>(exponent - 1) << kMantissaBits;
    return static_cast<Bits>(sign | (biased + kept));
  }
};

template <class Visitor>
auto with_format(DType dtype, Visitor visit) {
  switch (dtype) {
    case DType::kU8: return visit(Integer<uint8_t>{});
    case DType::kI32: return visit(Integer<int32_t>{});
    case DType::kF16: return visit(Float<uint16_t, float, 5, 10>{});
    case DType::kBF16: return visit(Float<uint16_t, float, 8, 7>{});
    case DType::kF32: return visit(Float<uint32_t, float, 8, 23>{});
    case DType::kF64: return visit(Float<uint64_t, double, 11, 52>{});
    case DType::kI64: return visit(Integer<int64_t>{});
    case DType::kI8: return visit(Integer<int8_t>{});
    case DType::kU32: return visit(Integer<uint32_t>{});
    case DType::kU64: return visit(Integer<uint64_t>{});
    case DType::kF8E4M3: return visit(Float<uint8_t, float, 4, 3>{});
    case DType::kI16: return visit(Integer<int16_t>{});
    case DType::kU16: return visit(Integer<uint16_t>{});
    case DType::kBool: return visit(Truth{});
    case DType::kComplex64: return visit(Float<uint32_t, float, 8, 23>{});     // part by part
    case DType::kComplex128: return visit(Float<uint64_t, double, 11, 52>{});  // part by part
    case DType::kF8E5M2: break;
  }
  return visit(Float<uint8_t, float, 5, 2>{});
}

template <class Sum>
Sum combine_bits(ReduceOp op, Sum a, Sum b) {
  if constexpr (std::is_integral_v<Sum>) {
    if (op == ReduceOp::kBitAnd) return a & b;
    return op == ReduceOp::kBitOr ? a | b : a ^ b;
  }
  return a;
}

template <class Format>
typename Format::Sum combine(ReduceOp op, typename Format::Sum a, typename Format::Sum b) {
  if constexpr (std::is_same_v<Format, Truth>) {
    if (op == ReduceOp::kSum) op = ReduceOp::kMax;
    if (op == ReduceOp::kProduct) op = ReduceOp::kMin;
  }
  switch (op) {
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor: return combine_bits(op, a, b);
    case ReduceOp::kMax: return a < b ? b : a;
    case ReduceOp::kMin: return b < a ? b : a;
    case ReduceOp::kProduct: return Format::multiply(a, b);
    case ReduceOp::kSum:
    case ReduceOp::kAverage: break;
  }
  return Format::add(a, b);
}

template <class Format>
bool equals(const std::byte* got, size_t i, typename Format::Bits expected) {
  typename Format::Bits bits;
  std::memcpy(&bits, got + i * sizeof bits, sizeof bits);
  return bits == expected;
}

constexpr size_t kBlock = 256;  // elements reduced together, so that the loop over ranks is outside that over elements

template <class Format>
size_t wrong_reductions(const BenchValues& values, size_t first, size_t count, const std::byte* got) {
  using Sum = typename Format::Sum;
  size_t wrong = 0;
  Sum sums[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t n = count - begin < kBlock ? count - begin : kBlock;
    for (Rank rank = 0; rank < values.ranks; ++rank) {
      const uint64_t stream = stream_of(values, rank);
      for (size_t i = 0; i < n; ++i) {
        const Sum value = Format::decode(Format::random(hash(stream, first + begin + i)));
        sums[i] = rank == 0 ? value : combine<Format>(values.op, sums[i], value);
      }
    }
    for (size_t i = 0; i < n; ++i) {
      if (values.op == ReduceOp::kAverage) sums[i] = sums[i] / static_cast<Sum>(values.ranks);
      wrong += !equals<Format>(got, begin + i, Format::encode(sums[i]));
    }
  }
  return wrong;
}

// Of a complex number, two: each is random, and counts when it is wrong.
size_t parts_of(DType dtype) { return is_complex(dtype) ? 2 : 1; }

}  // namespace

void fill_values(const BenchValues& values, Rank rank, size_t first, size_t count, std::byte* out) {
  first *= parts_of(values.dtype);
  count *= parts_of(values.dtype);
  with_format(values.dtype, [&](auto format) {
    using Format = decltype(format);
    const uint64_t stream = stream_of(values, rank);
    for (size_t i = 0; i < count; ++i) {
      const typename Format::Bits bits = Format::random(hash(stream, first + i));
      std::memcpy(out + i * sizeof bits, &bits, sizeof bits);
    }
  });
}

size_t count_wrong_values(const BenchValues& values, Rank rank, size_t first, size_t count, const std::byte* got) {
  first *= parts_of(values.dtype);
  count *= parts_of(values.dtype);
  return with_format(values.dtype, [&](auto format) {
    using Format = decltype(format);
    const uint64_t stream = stream_of(values, rank);
    size_t wrong = 0;
    for (size_t i = 0; i < count; ++i) wrong += !equals<Format>(got, i, Format::random(hash(stream, first + i)));
    return wrong;
  });
}

size_t count_wrong_reductions(const BenchValues& values, size_t first, size_t count, const std::byte* got) {
  first *= parts_of(values.dtype);
  count *= parts_of(values.dtype);
  return with_format(values.dtype,
                     [&](auto format) { return wrong_reductions<decltype(format)>(values, first, count, got); });
}

}  // namespace shardcomm::tools
