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

// Element types. The values are part of the C ABI and of the wire signature: append only.
enum class DType : uint8_t { kU8, kI32, kF16, kBF16, kF32, kF64, kI64, kI8, kU32, kU64, kF8E4M3, kF8E5M2 };
inline constexpr int kDTypeCount = 12;

// Reductions, applied in rank order 0, 1, …, n−1. kAverage is the sum divided by n; floating types only.
// 16- and 8-bit floats are accumulated in f32 and rounded once, to nearest even.
enum class ReduceOp : uint8_t { kSum, kAverage, kMax, kMin, kProduct };
inline constexpr int kReduceOpCount = 5;

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
    case DType::kF8E4M3:
    case DType::kF8E5M2: return 1;
    case DType::kF16:
    case DType::kBF16: return 2;
    case DType::kI32:
    case DType::kU32:
    case DType::kF32: return 4;
    case DType::kF64:
    case DType::kI64:
    case DType::kU64: return 8;
  }
  return 0;
}

constexpr bool is_floating(DType t) noexcept {
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

// Which pairs can be reduced: everything but an average of integers, whose rounding nobody agrees on.
constexpr bool supports(DType t, ReduceOp op) noexcept {
  return is_valid(t) && is_valid(op) && (op != ReduceOp::kAverage || is_floating(t));
}

SHARDCOMM_EXPORT std::string_view name(DType t) noexcept;                           // "bf16", "f8e4m3"
SHARDCOMM_EXPORT std::string_view name(ReduceOp op) noexcept;                       // "sum", "average"
SHARDCOMM_EXPORT std::optional<DType> parse_dtype(std::string_view text) noexcept;  // inverse of name()
SHARDCOMM_EXPORT std::optional<ReduceOp> parse_reduce_op(std::string_view text) noexcept;

// What the host kernels are compiled for that suit this processor best: "avx2", or "portable" for the baseline. The
// bits do not depend on it.
SHARDCOMM_EXPORT std::string_view host_kernels() noexcept;

}  // namespace shardcomm
