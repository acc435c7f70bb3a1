// The names of element types and reductions, indexed by their values.
#include "shardcomm/types.h"

#include <array>

namespace shardcomm {
namespace {

constexpr std::array<std::string_view, kDTypeCount> kDTypeNames = {
    "u8",  "i32",    "f16",    "bf16", "f32", "f64",  "i64",       "i8",        "u32",
    "u64", "f8e4m3", "f8e5m2", "i16",  "u16", "bool", "complex64", "complex128"};
constexpr std::array<std::string_view, kReduceOpCount> kReduceOpNames = {"sum",     "average", "max", "min",
                                                                         "product", "band",    "bor", "bxor"};

template <class T, size_t N>
std::optional<T> parse(const std::array<std::string_view, N>& names, std::string_view text) noexcept {
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == text) return static_cast<T>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view name(DType t) noexcept { return is_valid(t) ? kDTypeNames[static_cast<size_t>(t)] : "unknown"; }
std::string_view name(ReduceOp op) noexcept {
  return is_valid(op) ? kReduceOpNames[static_cast<size_t>(op)] : "unknown";
}
std::optional<DType> parse_dtype(std::string_view text) noexcept { return parse<DType>(kDTypeNames, text); }
std::optional<ReduceOp> parse_reduce_op(std::string_view text) noexcept {
  return parse<ReduceOp>(kReduceOpNames, text);
}

}  // namespace shardcomm
