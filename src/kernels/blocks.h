// Blocks: how one vector's worth of stored elements becomes lanes of the accumulation type, and back.
// A block spreads `kElements` neighbours over `kParts` accumulators in whatever order is cheapest: reductions are
// element by element, so only load and pack must agree. pack() makes every NaN the canonical one.
#pragma once
#include "kernels/float_formats.h"
#include "kernels/lanes.h"

namespace shardcomm::kernels {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "PackedBlock takes its elements from the low end");

// Types accumulated as they are stored: integers, f32, f64.
template <class Isa, class T>
struct NativeBlock {
  using Path = Isa;
  using Accumulator = Vector<T, Isa::kVectorBytes>;
  static constexpr size_t kParts = 1;
  static constexpr size_t kElementBytes = sizeof(T);
  static constexpr size_t kElements = Isa::kVectorBytes / sizeof(T);

  struct Parts {
    Accumulator part[kParts];
  };

  SHARDCOMM_LANES static Parts load(const std::byte* from) { return {{load_lanes<Accumulator>(from)}}; }

  SHARDCOMM_LANES static auto pack(const Parts& parts) {
    const Accumulator value = parts.part[0];
    if constexpr (std::is_floating_point_v<T>) {
      using Bits = Vector<std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>, Isa::kVectorBytes>;
      const Bits nan = Bits{} + (static_cast<Lane<Bits>>(-1) >> 1);
      return value == value ? __builtin_bit_cast(Bits, value) : nan;
    } else {
      return value;
    }
  }
};

// Bools: bytes of which any but 0 is true, as 0 and 1.
template <class Isa>
struct BoolBlock : NativeBlock<Isa, uint8_t> {
  using Base = NativeBlock<Isa, uint8_t>;
  SHARDCOMM_LANES static typename Base::Parts load(const std::byte* from) {
    const typename Base::Accumulator bytes = load_lanes<typename Base::Accumulator>(from);
    using Ones = typename Base::Accumulator;
    return {{__builtin_bit_cast(Ones, bytes != 0) & (Ones{} + 1)}};
  }
};

// Complex numbers: pairs of what `Block` has, which are reduced part by part.
template <class Block>
struct ComplexBlock : Block {
  static constexpr size_t kElementBytes = 2 * Block::kElementBytes;
  static constexpr size_t kElements = Block::kElements / 2;
};

// bf16: an even element moves up to become an f32, an odd one is already in place above its neighbour.
template <class Isa>
struct BF16Block {
  using Path = Isa;
  using Accumulator = Vector<float, Isa::kVectorBytes>;
  using Words = Vector<uint32_t, Isa::kVectorBytes>;
  static constexpr size_t kParts = 2;
  static constexpr size_t kElementBytes = 2;
  static constexpr size_t kElements = Isa::kVectorBytes / kElementBytes;

  struct Parts {
    Accumulator part[kParts];
  };

  SHARDCOMM_LANES static Parts load(const std::byte* from) {
    const Words words = load_lanes<Words>(from);
    return {{__builtin_bit_cast(Accumulator, words << 16), __builtin_bit_cast(Accumulator, words & 0xffff0000u)}};
  }

  SHARDCOMM_LANES static Words pack(const Parts& parts) {
    const Words even = BF16::round<NanRule::kCanonical>(__builtin_bit_cast(Words, parts.part[0]));
    const Words odd = BF16::round<NanRule::kCanonical>(__builtin_bit_cast(Words, parts.part[1]));
    return (even >> 16) | (odd & 0xffff0000u);
  }
};

// Formats narrower than f32, by the conversions of float_formats.h: each 32-bit word holds 2 or 4 elements, and part j
// takes the j-th of every word.
template <class Isa, class Format>
struct PackedBlock {
  using Path = Isa;
  using Accumulator = Vector<float, Isa::kVectorBytes>;
  using Words = Vector<uint32_t, Isa::kVectorBytes>;
  static constexpr size_t kParts = 32 / Format::kWidth;
  static constexpr size_t kElementBytes = Format::kWidth / 8;
  static constexpr size_t kElements = Isa::kVectorBytes / kElementBytes;
  static constexpr uint32_t kMask = (1u << Format::kWidth) - 1;

  struct Parts {
    Accumulator part[kParts];
  };

  SHARDCOMM_LANES static Parts load(const std::byte* from) {
    const Words words = load_lanes<Words>(from);
    Parts parts;
    for (size_t j = 0; j < kParts; ++j) {
      const Words pattern = (words >> static_cast<uint32_t>(j * Format::kWidth)) & kMask;
      parts.part[j] = __builtin_bit_cast(Accumulator, Format::to_f32(pattern));
    }
    return parts;
  }

  SHARDCOMM_LANES static Words pack(const Parts& parts) {
    Words words{};
    for (size_t j = 0; j < kParts; ++j) {
      const Words pattern = Format::template from_f32<NanRule::kCanonical>(__builtin_bit_cast(Words, parts.part[j]));
      words |= pattern << static_cast<uint32_t>(j * Format::kWidth);
    }
    return words;
  }
};

}  // namespace shardcomm::kernels
