// Part of the door memory/memory.h. A BlockMap divides ranges of memory into blocks that come and go in any order. It
// never touches the memory itself.
//
// It is a two-level segregated fit (Masmano, Ripoll, Crespo, Real: TLSF, a new dynamic memory allocator for real-time
// systems, ECRTS 2004): free blocks hang in lists by size, sixteen lists to a power of two, and a bit map of the lists
// finds the smallest whose blocks are all large enough. Neighbours that are free become one block at once. Unlike
// there, the records lie outside of the memory they describe, since its users may write anything.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace shardcomm {

// One thread at a time.
class BlockMap {
 public:
  static constexpr size_t kGranuleBytes = 64;            // blocks begin at multiples of it, and their sizes are such
  static constexpr size_t kMostBytes = size_t{1} << 48;  // of a block with its alignment

  // A block of `bytes` has this size.
  static constexpr size_t rounded(size_t bytes) noexcept {
    return bytes <= kGranuleBytes ? kGranuleBytes : (bytes + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
  }

  // A new range, all of it free. Both numbers are multiples of kGranuleBytes, and `bytes` is not 0. Neighbouring ranges
  // are not joined.
  void add(std::byte* base, size_t bytes);
  // Ends the range that begins there and is wholly free; false where it is not.
  bool remove(const std::byte* base) noexcept;

  // A block at a multiple of `align` (a power of two, at least kGranuleBytes); null where no range has room.
  // bytes + align <= kMostBytes.
  std::byte* take(size_t bytes, size_t align);
  // Returns the size of the block that begins there and is free from now on; 0 where none is taken.
  size_t give(const void* block) noexcept;

 private:
  struct Block {
    std::byte* begin;
    size_t bytes;
    Block* before = nullptr;  // neighbours in the range
    Block* after = nullptr;
    Block* previous = nullptr;  // in its list, while it is free
    Block* next = nullptr;
    bool is_free = false;

    bool fits(size_t wanted_bytes, size_t align) const noexcept;
  };

  static constexpr size_t kListsPerPower = 16, kPowerBits = 4;
  static constexpr size_t kLists = (48 - 6 - kPowerBits + 2) * kListsPerPower;

  static size_t list_of(size_t bytes) noexcept;           // where a free block of this size hangs
  static size_t list_of_at_least(size_t bytes) noexcept;  // the first list whose blocks all have so many bytes
  Block* find(size_t bytes, size_t align) const noexcept;
  Block* search(size_t list, size_t bytes, size_t align, size_t most_blocks) const noexcept;
  size_t next_list(size_t first) const noexcept;  // that is not empty; kLists: none
  void hang(Block* block) noexcept;
  void unhang(Block* block) noexcept;
  // Cuts the end off a block that is in no list; what is cut off is free.
  void cut(Block* block, size_t bytes);
  void absorb_next(Block* block) noexcept;

  std::unordered_map<const void*, Block> blocks_;  // by begin; every byte of every range is in one of them
  std::array<Block*, kLists> lists_{};
  std::array<uint64_t, (kLists + 63) / 64> filled_{};  // a bit for each list that is not empty
};

}  // namespace shardcomm
