#include "tests/support/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace shardcomm::testing {
namespace {

struct Format {
  int exponent_bits, mantissa_bits;
  bool has_infinities;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint32_t magnitude_bits() const { return (1u << (exponent_bits + mantissa_bits)) - 1; }
  // The first magnitude that is not a finite number.
  uint32_t beyond_finite() const {
    return has_infinities ? ((1u << exponent_bits) - 1) << mantissa_bits : magnitude_bits();
  }
};

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::kF16: return {5, 10, true};
    case DType::kBF16: return {8, 7, true};
    case DType::kF8E5M2: return {5, 2, true};
    default: return {4, 3, false};  // f8e4m3
  }
}

// Decoding of every pattern, so that tests of many elements are quick.
const std::vector<float>& decoded(DType dtype) {
  const auto make = [](DType type) {
    std::vector<float> all(size_t{1} << (8 * size_of(type)));
    for (size_t bits = 0; bits < all.size(); ++bits)
      all[bits] = static_cast<float>(decode_small(static_cast<uint32_t>(bits), type));
    return all;
  };
  static const std::vector<float> f16 = make(DType::kF16), bf16 = make(DType::kBF16), e4m3 = make(DType::kF8E4M3),
                                  e5m2 = make(DType::kF8E5M2);
  switch (dtype) {
    case DType::kF16: return f16;
    case DType::kBF16: return bf16;
    case DType::kF8E5M2: return e5m2;
    default: return e4m3;
  }
}

template <class T>
T load(const std::byte* from, size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store(std::byte* to, size_t index, T value) {
  std::memcpy(to + index * sizeof(T), &value, sizeof(T));
}

// +-[1, 2) * 2^[-4, 4); one in 32 is special.
double random_real(uint64_t bits, double smallest, double largest) {
  if (bits % 32 == 0) {
    const double specials[] = {0.0, -0.0, smallest, -smallest, INFINITY, largest, -largest, NAN, 1.0, -1.0};
    return specials[bits / 32 % std::size(specials)];
  }
  const double mantissa = 1.0 + std::ldexp(static_cast<double>(bits >> 12), -52);
  return std::ldexp(bits & 1 ? -mantissa : mantissa, static_cast<int>(bits >> 1 & 7) - 4);
}

uint64_t random_element(uint64_t bits, DType dtype) {
  uint64_t element = bits;
  if (dtype == DType::kBool) return bits % 16 == 0 ? bits >> 8 : bits >> 8 & 1;  // now and then another truth than 1
  if (dtype == DType::kF64) {
    const double value = random_real(bits, std::numeric_limits<double>::denorm_min(), 0x1p1000);
    std::memcpy(&element, &value, sizeof value);
  } else if (dtype == DType::kF32) {
    const auto value = static_cast<float>(random_real(bits, std::numeric_limits<float>::denorm_min(), 0x1p120));
    element = 0;
    std::memcpy(&element, &value, sizeof value);
  } else if (is_small(dtype)) {
    const Format format = format_of(dtype);
    const double smallest = decode_small(1, dtype), largest = decode_small(format.beyond_finite() - 1, dtype);
    element = encode_small(static_cast<float>(random_real(bits, smallest, largest)), dtype);
  }
  return element;
}

template <class T>
T combine(T a, T b, ReduceOp op) {
  if constexpr (std::is_floating_point_v<T>) {
    if (op == ReduceOp::kSum || op == ReduceOp::kAverage) return a + b;
    if (op == ReduceOp::kProduct) return a * b;
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    const bool a_is_less = a < b || (a == b && std::signbit(a));
    return (op == ReduceOp::kMax) == a_is_less ? b : a;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (op == ReduceOp::kBitXor) return a != b;
    return op == ReduceOp::kProduct || op == ReduceOp::kMin || op == ReduceOp::kBitAnd ? a && b : a || b;
  } else {
    if (op == ReduceOp::kBitAnd) return static_cast<T>(a & b);
    if (op == ReduceOp::kBitOr) return static_cast<T>(a | b);
    if (op == ReduceOp::kBitXor) return static_cast<T>(a ^ b);
    if (op == ReduceOp::kSum) return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    if (op == ReduceOp::kProduct) return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    return (op == ReduceOp::kMax) == (a < b) ? b : a;
  }
}

// Element i in the type that it is accumulated in, and back.
template <class T>
struct Plain {
  static T get(const std::byte* from, size_t i, DType) { return load<T>(from, i); }
  static void put(std::byte* to, size_t i, T value, DType) { store(to, i, value); }
};
template <class Pattern>
struct Small {
  static float get(const std::byte* from, size_t i, DType dtype) { return decoded(dtype)[load<Pattern>(from, i)]; }
  static void put(std::byte* to, size_t i, float value, DType dtype) {
    store(to, i, static_cast<Pattern>(encode_small(value, dtype)));
  }
};

struct Truth {
  static bool get(const std::byte* from, size_t i, DType) { return load<uint8_t>(from, i) != 0; }
  static void put(std::byte* to, size_t i, bool value, DType) { store(to, i, static_cast<uint8_t>(value ? 1 : 0)); }
};

DType part_of(DType complex) { return complex == DType::kComplex64 ? DType::kF32 : DType::kF64; }

template <class Access>
void reduce_as(std::byte* target, std::span<const std::byte* const> sources, size_t count, DType dtype, ReduceOp op,
               double scale) {
  for (size_t i = 0; i < count; ++i) {
    auto value = Access::get(sources[0], i, dtype);
    for (size_t k = 1; k < sources.size(); ++k) value = combine(value, Access::get(sources[k], i, dtype), op);
    if (op == ReduceOp::kAverage)
      value = static_cast<decltype(value)>(value / static_cast<decltype(value)>(sources.size()));
    if (scale != 1) value = static_cast<decltype(value)>(value * static_cast<decltype(value)>(scale));
    Access::put(target, i, value, dtype);
  }
}

bool is_nan_at(const std::byte* elements, size_t i, DType dtype) {
  switch (dtype) {
    case DType::kF32: return std::isnan(load<float>(elements, i));
    case DType::kF64: return std::isnan(load<double>(elements, i));
    case DType::kF16:
    case DType::kBF16: return std::isnan(decode_small(load<uint16_t>(elements, i), dtype));
    case DType::kF8E4M3:
    case DType::kF8E5M2: return std::isnan(decode_small(load<uint8_t>(elements, i), dtype));
    default: return false;
  }
}

}  // namespace

uint64_t test_seed() {
  static const uint64_t seed = [] {
    const auto given = static_cast<uint64_t>(GTEST_FLAG_GET(random_seed));
    return given != 0 ? given : std::random_device()() % 99999 + 1;
  }();
  return seed;
}

namespace {

// Before any rank is forked: all have the one seed.
class DrawSeed : public ::testing::Environment {
  void SetUp() override { (void)test_seed(); }
};
[[maybe_unused]] const ::testing::Environment* const draw_seed = ::testing::AddGlobalTestEnvironment(new DrawSeed);

}  // namespace

// Two rounds of the finaliser of splitmix64 (Steele, Lea, Flood 2014).
uint64_t random_bits(uint64_t seed, uint64_t a, uint64_t b) noexcept {
  uint64_t z = seed * 0x9e3779b97f4a7c15 + a * 0xd1342543de82ef95 + b;
  for (int round = 0; round < 2; ++round) {
    z += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
  }
  return z;
}

void fill_elements(std::byte* target, uint64_t seed, Rank rank, size_t first, size_t count, DType dtype) {
  if (is_complex(dtype)) return fill_elements(target, seed, rank, 2 * first, 2 * count, part_of(dtype));
  const size_t size = size_of(dtype);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t element = random_element(random_bits(seed, static_cast<uint64_t>(rank) + 1, first + i), dtype);
    std::memcpy(target + i * size, &element, std::min(sizeof element, size));  // little endian: the low bytes
  }
}

void reduce_elements(std::byte* target, std::span<const std::byte* const> sources, size_t count, DType dtype,
                     ReduceOp op, double scale) {
  switch (dtype) {
    case DType::kU8: return reduce_as<Plain<uint8_t>>(target, sources, count, dtype, op, scale);
    case DType::kI8: return reduce_as<Plain<int8_t>>(target, sources, count, dtype, op, scale);
    case DType::kU32: return reduce_as<Plain<uint32_t>>(target, sources, count, dtype, op, scale);
    case DType::kI32: return reduce_as<Plain<int32_t>>(target, sources, count, dtype, op, scale);
    case DType::kU64: return reduce_as<Plain<uint64_t>>(target, sources, count, dtype, op, scale);
    case DType::kI64: return reduce_as<Plain<int64_t>>(target, sources, count, dtype, op, scale);
    case DType::kF32: return reduce_as<Plain<float>>(target, sources, count, dtype, op, scale);
    case DType::kF64: return reduce_as<Plain<double>>(target, sources, count, dtype, op, scale);
    case DType::kF16:
    case DType::kBF16: return reduce_as<Small<uint16_t>>(target, sources, count, dtype, op, scale);
    case DType::kF8E4M3:
    case DType::kF8E5M2: return reduce_as<Small<uint8_t>>(target, sources, count, dtype, op, scale);
    case DType::kI16: return reduce_as<Plain<int16_t>>(target, sources, count, dtype, op, scale);
    case DType::kU16: return reduce_as<Plain<uint16_t>>(target, sources, count, dtype, op, scale);
    case DType::kBool: return reduce_as<Truth>(target, sources, count, dtype, op, scale);
    case DType::kComplex64:
    case DType::kComplex128: return reduce_elements(target, sources, 2 * count, part_of(dtype), op, scale);
  }
}

bool is_small(DType dtype) noexcept { return is_floating(dtype) && size_of(dtype) <= 2; }

double decode_small(uint32_t bits, DType dtype) {
  const Format format = format_of(dtype);
  const uint32_t magnitude = bits & format.magnitude_bits();
  const double sign = bits > format.magnitude_bits() ? -1.0 : 1.0;
  if (magnitude >= format.beyond_finite()) {
    const bool infinite = format.has_infinities && magnitude == format.beyond_finite();
    return infinite ? sign * INFINITY : NAN;
  }
  const auto exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const auto mantissa = static_cast<double>(magnitude & ((1u << format.mantissa_bits) - 1));
  const double implied = exponent == 0 ? 0.0 : std::ldexp(1.0, format.mantissa_bits);
  return sign * std::ldexp(implied + mantissa, std::max(exponent, 1) - format.bias() - format.mantissa_bits);
}

uint32_t encode_small(float value, DType dtype) {
  const Format format = format_of(dtype);
  const uint32_t sign = std::signbit(value) ? format.magnitude_bits() + 1 : 0;
  if (std::isnan(value)) return sign | format.magnitude_bits();
  if (std::isinf(value)) return sign | format.beyond_finite();
  if (value == 0) return sign;
  int exponent = 0;
  std::frexp(value, &exponent);
  const int scale = std::max(exponent - 1, 1 - format.bias());  // of the leading bit; subnormals share the least
  // In units of the last place; nearbyint rounds to nearest even, and the product is exact.
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(std::fabs(value), format.mantissa_bits - scale)));
  const auto base = static_cast<uint32_t>(scale + format.bias()) << format.mantissa_bits;
  const uint64_t magnitude = uint64_t{base} + units - (uint64_t{1} << format.mantissa_bits);  // a carry raises base
  return sign | static_cast<uint32_t>(std::min<uint64_t>(magnitude, format.beyond_finite()));
}

std::optional<size_t> first_difference(const std::byte* got, const std::byte* expected, size_t count, DType dtype) {
  if (is_complex(dtype)) {
    const auto part = first_difference(got, expected, 2 * count, part_of(dtype));
    return part ? std::optional(*part / 2) : std::nullopt;
  }
  const size_t size = size_of(dtype);
  if (count == 0 || std::memcmp(got, expected, count * size) == 0) return std::nullopt;
  for (size_t i = 0; i < count; ++i) {
    if (std::memcmp(got + i * size, expected + i * size, size) == 0) continue;
    if (!is_nan_at(got, i, dtype) || !is_nan_at(expected, i, dtype)) return i;
  }
  return std::nullopt;
}

std::string element_text(const std::byte* elements, size_t index, DType dtype) {
  if (is_complex(dtype))
    return element_text(elements, 2 * index, part_of(dtype)) + " + i " +
           element_text(elements, 2 * index + 1, part_of(dtype));
  uint64_t bits = 0;
  std::memcpy(&bits, elements + index * size_of(dtype), std::min(sizeof bits, size_of(dtype)));
  char text[64];
  double value = static_cast<double>(bits);
  if (dtype == DType::kF64) value = load<double>(elements, index);
  if (dtype == DType::kF32) value = load<float>(elements, index);
  if (is_small(dtype)) value = decode_small(static_cast<uint32_t>(bits), dtype);
  std::snprintf(text, sizeof text, "%.9g (0x%llx)", value, static_cast<unsigned long long>(bits));
  return text;
}

Reference::Reference(uint64_t seed, int ranks, size_t elements, size_t bytes)
    : seed_(seed), ranks_(ranks), dtypes_(kDTypeCount) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    OfDType& made = dtypes_[static_cast<size_t>(d)];
    made.elements = std::max(elements, bytes / size_of(dtype) + 1);
    std::vector<const std::byte*> sources;
    made.inputs.resize(static_cast<size_t>(ranks));
    for (Rank rank = 0; rank < ranks; ++rank) {
      auto& input = made.inputs[static_cast<size_t>(rank)];
      input.resize(made.elements * size_of(dtype));
      fill_elements(input.data(), seed, rank, 0, made.elements, dtype);
      sources.push_back(input.data());
    }
    for (int op = 0; op < kReduceOpCount; ++op) {
      auto& reduced = made.reduced.emplace_back();
      if (!supports(dtype, static_cast<ReduceOp>(op))) continue;
      reduced.resize(made.elements * size_of(dtype));
      reduce_elements(reduced.data(), sources, made.elements, dtype, static_cast<ReduceOp>(op));
    }
  }
}

size_t Reference::elements(DType dtype) const noexcept { return dtypes_[static_cast<size_t>(dtype)].elements; }

const std::byte* Reference::input(DType dtype, Rank rank, size_t first) const noexcept {
  return dtypes_[static_cast<size_t>(dtype)].inputs[static_cast<size_t>(rank)].data() + first * size_of(dtype);
}

const std::byte* Reference::reduced(DType dtype, ReduceOp op, size_t first) const noexcept {
  return dtypes_[static_cast<size_t>(dtype)].reduced[static_cast<size_t>(op)].data() + first * size_of(dtype);
}

}  // namespace shardcomm::testing
