// The host reduction, as templates over a block (how elements become lanes) and an operation.
// One pass: every source is read once, the target written once. A tile of blocks stays in registers while the sources
// are combined from left to right. Beyond kGroup sources a processor loses track of the streams, so the range is cut
// into pieces whose accumulators fit the first-level cache, and each piece takes the sources a group at a time.
// Each translation unit instantiates this for its own Isa, so that no two units share a symbol.
#pragma once
#include "kernels/blocks.h"
#include "kernels/host_path.h"
#include "kernels/lanes.h"

namespace shardcomm::kernels {

struct Sum {
  static constexpr bool kScales = false;

  template <class V>
  SHARDCOMM_LANES static V combine(V a, V b) {
    return a + b;
  }
  template <class V>
  SHARDCOMM_LANES static V finish(V sum, Lane<V>) {
    return sum;
  }
};

struct Average : Sum {
  template <class V>
  SHARDCOMM_LANES static V finish(V sum, Lane<V> divisor) {
    return sum / (V{} + divisor);
  }
};

struct Product : Sum {
  template <class V>
  SHARDCOMM_LANES static V combine(V a, V b) {
    return a * b;
  }
};

// IEEE 754-2019 maximum and minimum: −0 < +0, and any NaN gives NaN. Choosing from both sides and joining the bits
// settles the zeros (other equal numbers have equal bits); the comparison's all-ones mask is itself a NaN.
struct Max : Sum {
  template <class V>
  SHARDCOMM_LANES static V combine(V a, V b) {
    if constexpr (std::is_floating_point_v<Lane<V>>) {
      using Mask = decltype(a != a);
      const Mask left = __builtin_bit_cast(Mask, a > b ? a : b);
      const Mask right = __builtin_bit_cast(Mask, b > a ? b : a);
      return __builtin_bit_cast(V, (left & right) | (a != a) | (b != b));
    } else {
      return a > b ? a : b;
    }
  }
};

struct Min : Sum {
  template <class V>
  SHARDCOMM_LANES static V combine(V a, V b) {
    if constexpr (std::is_floating_point_v<Lane<V>>) {
      using Mask = decltype(a != a);
      const Mask left = __builtin_bit_cast(Mask, a < b ? a : b);
      const Mask right = __builtin_bit_cast(Mask, b < a ? b : a);
      return __builtin_bit_cast(V, left | right | (a != a) | (b != b));
    } else {
      return a < b ? a : b;
    }
  }
};

struct BitAnd : Sum {
  template <class V>
  SHARDCOMM_LANES static V combine(V a, V b) {
    return a & b;
  }
};

struct BitOr : Sum {
  template <class V>
  SHARDCOMM_LANES static V combine(V a, V b) {
    return a | b;
  }
};

struct BitXor : Sum {
  template <class V>
  SHARDCOMM_LANES static V combine(V a, V b) {
    return a ^ b;
  }
};

// The same operation, whose result is multiplied by a scale. It is code of its own, because a branch on the scale would
// slow the sums that have none.
template <class Op>
struct Scaled : Op {
  static constexpr bool kScales = true;
};

template <class Block, class Op>
struct Reduction {
  using Parts = typename Block::Parts;
  using Path = typename Block::Path;
  using Scalar = Lane<typename Block::Accumulator>;

  static constexpr size_t kParts = Block::kParts;
  static constexpr size_t kBlockBytes = Block::kElements * Block::kElementBytes;
  static constexpr size_t kTile = 8 / kParts;  // blocks whose accumulators fill half the registers
  static constexpr size_t kGroup = 8;          // sources read side by side
  static constexpr size_t kScratchBlocks = 8192 / sizeof(Parts);
  static constexpr size_t kAheadBytes = 1024;
  static constexpr size_t kBeginningBytes = 256;

  // By value: one that has an address might, for all a compiler knows, be changed by what is stored in `target`.
  struct Pass {
    std::byte* target;
    const void* const* sources;
    size_t source_count;
    size_t offset;  // bytes into target and every source
    bool large;
    Scalar divisor;
    Scalar scale;
    bool streaming = false;
    size_t blocks = 0;
    bool begins = true;        // with sources[0]; otherwise with what `scratch` holds
    bool finishes = true;      // into target; otherwise into `scratch`
    Parts* scratch = nullptr;  // one entry a block
  };

  // kBlocks blocks at once. The branches on `pass` go the same way in every tile, so they cost nothing.
  template <size_t kBlocks>
  SHARDCOMM_LANES static void tile(const Pass& pass, size_t first) {
    const size_t offset = pass.offset + first * kBlockBytes;
    Parts sum[kBlocks];
    if (kParts > 1 && pass.large) fetch_ahead(pass, offset, kBlocks * kBlockBytes);
    if (pass.begins) {
      for (size_t b = 0; b < kBlocks; ++b) sum[b] = Block::load(at(pass.sources[0], offset + b * kBlockBytes));
    } else {
      for (size_t b = 0; b < kBlocks; ++b) sum[b] = pass.scratch[first + b];
    }
    for (size_t k = pass.begins ? 1 : 0; k < pass.source_count; ++k) {
      for (size_t b = 0; b < kBlocks; ++b) {
        fold(sum[b], Block::load(at(pass.sources[k], offset + b * kBlockBytes)));
      }
    }
    if (pass.finishes) {
      for (size_t b = 0; b < kBlocks; ++b) {
        write(pass, pass.target + offset + b * kBlockBytes, Block::pack(finished(sum[b], pass)));
      }
    } else {
      for (size_t b = 0; b < kBlocks; ++b) pass.scratch[first + b] = sum[b];
    }
  }

  SHARDCOMM_LANES static const std::byte* at(const void* source, size_t offset) {
    return static_cast<const std::byte*>(source) + offset;
  }

  // Blocks of several parts take so many instructions that the processor's own window does not reach far enough.
  SHARDCOMM_LANES static void fetch_ahead(const Pass& pass, size_t offset, size_t bytes) {
    for (size_t k = 0; k < pass.source_count; ++k) {
      // An address, not a pointer: it may lie beyond the source, where fetching ahead does nothing.
      const uintptr_t ahead = reinterpret_cast<uintptr_t>(pass.sources[k]) + offset + kAheadBytes;
      for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(reinterpret_cast<const void*>(ahead + line));
    }
  }

  SHARDCOMM_LANES static void fold(Parts& sum, const Parts& next) {
    for (size_t j = 0; j < kParts; ++j) sum.part[j] = Op::combine(sum.part[j], next.part[j]);
  }

  SHARDCOMM_LANES static Parts finished(Parts sum, const Pass& pass) {
    for (size_t j = 0; j < kParts; ++j) sum.part[j] = Op::finish(sum.part[j], pass.divisor);
    if constexpr (Op::kScales) {
      for (size_t j = 0; j < kParts; ++j) sum.part[j] = sum.part[j] * (typename Block::Accumulator{} + pass.scale);
    }
    return sum;
  }

  template <class V>
  SHARDCOMM_LANES static void write(const Pass& pass, std::byte* to, V packed) {
    if (Path::kStreams && pass.streaming) {
      Path::stream(to, packed);
    } else {
      store_lanes(to, packed);
    }
  }

  SHARDCOMM_LANES static void run(const Pass pass) {
    size_t first = 0;
    for (; first + kTile <= pass.blocks; first += kTile) tile<kTile>(pass, first);
    for (; first < pass.blocks; ++first) tile<1>(pass, first);
  }

  [[gnu::noinline]] static void run_in_pieces(const Pass whole) {
    Parts scratch[kScratchBlocks];
    Pass piece = whole;
    piece.scratch = scratch;
    for (size_t done = 0; done < whole.blocks; done += piece.blocks) {
      piece.blocks = whole.blocks - done < kScratchBlocks ? whole.blocks - done : kScratchBlocks;
      piece.offset = whole.offset + done * kBlockBytes;
      for (size_t taken = 0; taken < whole.source_count; taken += piece.source_count) {
        const size_t left = whole.source_count - taken;
        piece.sources = whole.sources + taken;
        piece.source_count = left < kGroup ? left : kGroup;
        piece.begins = taken == 0;
        piece.finishes = left <= kGroup;
        run(piece);
      }
    }
  }

  // Fewer elements than a block: the same arithmetic on copies padded with zeros.
  [[gnu::noinline]] static void run_rest(const Pass pass, size_t bytes) {
    std::byte block[kBlockBytes] = {};
    __builtin_memcpy(block, at(pass.sources[0], pass.offset), bytes);
    Parts sum = Block::load(block);
    for (size_t k = 1; k < pass.source_count; ++k) {
      __builtin_memcpy(block, at(pass.sources[k], pass.offset), bytes);
      fold(sum, Block::load(block));
    }
    store_lanes(block, Block::pack(finished(sum, pass)));
    __builtin_memcpy(pass.target + pass.offset, block, bytes);
  }

  // Sums of gradients: worth code of their own.
  static constexpr bool kIsCommon =
      std::is_floating_point_v<Scalar> && kParts <= 2 && (std::is_same_v<Op, Sum> || std::is_same_v<Op, Average>);

  // Of short segments, finding out how many sources there are takes nearly as long as reading them, so the common
  // numbers are constants there.
  static void reduce(const HostReduce& args) {
    if constexpr (std::is_floating_point_v<Scalar> && !Op::kScales) {
      if (args.scale != 1) return Reduction<Block, Scaled<Op>>::reduce(args);
    }
    if (kIsCommon && !args.large) {
      if (args.source_count == 2) return reduce_table(args, 2, false);
      if (args.source_count == 4) return reduce_table(args, 4, false);
      if (args.source_count == 8) return reduce_table(args, 8, false);
    }
    reduce_table(args, args.source_count, args.large);
  }

  SHARDCOMM_LANES static void reduce_table(const HostReduce& args, size_t source_count, bool large) {
    size_t skipped = args.skipped, left = args.count;
    for (const ReduceSegment* segment = args.segments; left != 0; ++segment) {
      const size_t count = segment->count - skipped < left ? segment->count - skipped : left;
      left -= count;
      if (left != 0) fetch_beginning(segment[1], source_count);
      if (count == 0) continue;
      reduce_segment({.target = segment->target,
                      .sources = segment->sources,
                      .source_count = source_count,
                      .offset = skipped * Block::kElementBytes,
                      .large = large,
                      .divisor = static_cast<Scalar>(source_count),
                      .scale = static_cast<Scalar>(args.scale)},
                     count * Block::kElementBytes);
      skipped = 0;
    }
  }

  // The processor sees a stream only after some lines of it.
  SHARDCOMM_LANES static void fetch_beginning(const ReduceSegment& segment, size_t source_count) {
    const size_t all = segment.count * Block::kElementBytes, bytes = all < kBeginningBytes ? all : kBeginningBytes;
    for (size_t k = 0; k < source_count; ++k) {
      for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(at(segment.sources[k], line));
    }
  }

  // From pass.offset on.
  SHARDCOMM_LANES static void reduce_segment(Pass pass, size_t bytes) {
    const size_t end = pass.offset + bytes;
    pass.streaming = pass.large && Path::kStreams && !is_in_place(pass);  // in place the lines have been read anyway
    if (pass.streaming) pass = with_aligned_target(pass, end);
    pass.blocks = (end - pass.offset) / kBlockBytes;
    if (pass.source_count <= kGroup) {
      run(pass);
    } else {
      run_in_pieces(pass);
    }
    if (pass.streaming) Path::stream_fence();
    pass.offset += pass.blocks * kBlockBytes;
    if (pass.offset < end) run_rest(pass, end - pass.offset);
  }

  SHARDCOMM_LANES static bool is_in_place(const Pass& pass) {
    for (size_t k = 0; k < pass.source_count; ++k) {
      if (pass.sources[k] == pass.target) return true;
    }
    return false;
  }

  // Streaming stores need an aligned target: does the elements before the first boundary, or gives streaming up.
  [[gnu::noinline]] static Pass with_aligned_target(Pass pass, size_t end) {
    const size_t head = -reinterpret_cast<uintptr_t>(pass.target + pass.offset) % kBlockBytes;
    pass.streaming = head % Block::kElementBytes == 0 && head <= end - pass.offset;
    if (!pass.streaming || head == 0) return pass;
    run_rest(pass, head);
    pass.offset += head;
    return pass;
  }
};

}  // namespace shardcomm::kernels
