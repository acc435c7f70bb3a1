// The small vocabulary every other header uses: ranks, element types, reductions, devices, deadlines.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "shardcomm/export.h"

namespace shardcomm {

using Rank = int32_t;

// Element types. The values are part of the C ABI and of the wire signature: append only. Of a bool, every byte other
// than 0 counts as true, and results are 0 or 1. A complex number is its real part and then its imaginary part, each an
// f32 (complex64) or an f64 (complex128).
enum class DType : uint8_t {
  kU8,
  kI32,
  kF16,
  kBF16,
  kF32,
  kF64,
  kI64,
  kI8,
  kU32,
  kU64,
  kF8E4M3,
  kF8E5M2,
  kI16,
  kU16,
  kBool,
  kComplex64,
  kComplex128
};
inline constexpr int kDTypeCount = 17;

// Reductions, applied in rank order 0, 1, …, n−1. kAverage is the sum divided by n; floating and complex types only.
// 16- and 8-bit floats are accumulated in f32 and rounded once, to nearest even. Of bools, sum and max are "or",
// product and min are "and". The bitwise ones are for integers, and for bools, of which they combine the truth. Complex
// numbers have sums and averages.
//
// A call's `scale`, where it has one, multiplies the result of the reduction (after the division of an average) in the
// type that it is accumulated in, f64 for f64 and complex128, f32 for the other floating and complex types, before it
// is rounded. It is rounded to that type itself. A scale of 1 changes nothing, and no integer or bool has another.
enum class ReduceOp : uint8_t { kSum, kAverage, kMax, kMin, kProduct, kBitAnd, kBitOr, kBitXor };
inline constexpr int kReduceOpCount = 8;

struct Device {
  enum class Kind : uint8_t { kHost, kCuda } kind = Kind::kHost;
  int16_t index = 0;
  bool operator==(const Device&) const = default;
};

// Every wait is bounded by a point on the steady clock, so that clock jumps do not matter.
using Deadline = std::chrono::steady_clock::time_point;

constexpr bool is_valid(DType t) noexcept { return static_cast<int>(t) < kDTypeCount; }
constexpr bool is_valid(ReduceOp op) noexcept { return static_cast<int>(op) < kReduceOpCount; }

constexpr size_t size_of(DType t) noexcept {
  switch (t) {
    case DType::kU8:
    case DType::kI8:
    case DType::kBool:
    case DType::kF8E4M3:
    case DType::kF8E5M2: return 1;
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16:
    case DType::kU16: return 2;
    case DType::kI32:
    case DType::kU32:
    case DType::kF32: return 4;
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
    case DType::kComplex64: return 8;
    case DType::kComplex128: return 16;
  }
  return 0;
}

constexpr bool is_complex(DType t) noexcept { return t == DType::kComplex64 || t == DType::kComplex128; }

// Of its elements in memory: their size, of complex numbers that of a part.
constexpr size_t align_of(DType t) noexcept { return is_complex(t) ? size_of(t) / 2 : size_of(t); }

constexpr bool is_floating(DType t) noexcept {  // real numbers only
  switch (t) {
    case DType::kF16:
    case DType::kBF16:
    case DType::kF32:
    case DType::kF64:
    case DType::kF8E4M3:
    case DType::kF8E5M2: return true;
    default: return false;
  }
}

// Which pairs can be reduced: no average of integers, whose rounding nobody agrees on, no order of complex numbers, no
// bits of numbers that are not integers.
constexpr bool supports(DType t, ReduceOp op) noexcept {
  if (!is_valid(t) || !is_valid(op)) return false;
  const bool is_bitwise = op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
  if (is_complex(t)) return op == ReduceOp::kSum || op == ReduceOp::kAverage;
  if (is_floating(t)) return !is_bitwise;
  return op != ReduceOp::kAverage;
}

// Which types a scale other than 1 has a meaning for.
constexpr bool has_scale(DType t) noexcept { return is_floating(t) || is_complex(t); }

SHARDCOMM_EXPORT std::string_view name(DType t) noexcept;                           // "bf16", "complex64"
SHARDCOMM_EXPORT std::string_view name(ReduceOp op) noexcept;                       // "sum", "band"
SHARDCOMM_EXPORT std::optional<DType> parse_dtype(std::string_view text) noexcept;  // inverse of name()
SHARDCOMM_EXPORT std::optional<ReduceOp> parse_reduce_op(std::string_view text) noexcept;

// What the host kernels are compiled for that suit this processor best: "avx2", or "portable" for the baseline. The
// bits do not depend on it.
SHARDCOMM_EXPORT std::string_view host_kernels() noexcept;

}  // namespace shardcomm
