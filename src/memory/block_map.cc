#include "memory/block_map.h"

#include <algorithm>
#include <bit>

namespace shardcomm {
namespace {

// As many blocks of the list that may hold a fitting one are looked at before a larger block is divided.
constexpr size_t kFewBlocks = 8;

std::byte* align_up(std::byte* address, size_t align) noexcept {
  const size_t beyond = reinterpret_cast<uintptr_t>(address) & (align - 1);
  return beyond == 0 ? address : address + (align - beyond);
}

}  // namespace

bool BlockMap::Block::fits(size_t wanted_bytes, size_t align) const noexcept {
  const auto lost = static_cast<size_t>(align_up(begin, align) - begin);
  return lost <= bytes && bytes - lost >= wanted_bytes;
}

// Granules are numbers of few bits for small blocks, a list each; then the four bits below the highest choose the list.
size_t BlockMap::list_of(size_t bytes) noexcept {
  const size_t granules = bytes / kGranuleBytes;
  const auto bits = static_cast<size_t>(std::bit_width(granules));
  if (bits <= kPowerBits) return granules;
  const size_t shift = bits - 1 - kPowerBits;
  return std::min(kLists - 1, (shift + 1) * kListsPerPower + ((granules >> shift) & (kListsPerPower - 1)));
}

size_t BlockMap::list_of_at_least(size_t bytes) noexcept {
  const size_t granules = bytes / kGranuleBytes;
  const auto bits = static_cast<size_t>(std::bit_width(granules));
  if (bits <= kPowerBits) return granules;
  return list_of((granules + (size_t{1} << (bits - 1 - kPowerBits)) - 1) * kGranuleBytes);
}

void BlockMap::add(std::byte* base, size_t bytes) {
  hang(&blocks_.try_emplace(base, Block{.begin = base, .bytes = bytes}).first->second);
}

bool BlockMap::remove(const std::byte* base) noexcept {
  const auto found = blocks_.find(base);
  if (found == blocks_.end()) return false;
  Block& block = found->second;
  if (!block.is_free || block.before != nullptr || block.after != nullptr) return false;
  unhang(&block);
  blocks_.erase(found);
  return true;
}

std::byte* BlockMap::take(size_t bytes, size_t align) {
  bytes = rounded(bytes);
  Block* block = find(bytes, align);
  if (block == nullptr) return nullptr;
  unhang(block);
  const auto skipped = static_cast<size_t>(align_up(block->begin, align) - block->begin);
  if (skipped != 0) {
    cut(block, skipped);
    Block* const aligned = block->after;
    unhang(aligned);
    hang(block);
    block = aligned;
  }
  if (block->bytes > bytes) cut(block, bytes);
  return block->begin;
}

size_t BlockMap::give(const void* begin) noexcept {
  const auto found = blocks_.find(begin);
  if (found == blocks_.end() || found->second.is_free) return 0;
  Block* block = &found->second;
  const size_t bytes = block->bytes;
  if (block->after != nullptr && block->after->is_free) {
    unhang(block->after);
    absorb_next(block);
  }
  if (block->before != nullptr && block->before->is_free) {
    block = block->before;
    unhang(block);
    absorb_next(block);
  }
  hang(block);
  return bytes;
}

// A block whose size is just right is better than a larger one, and one that was given back a moment ago hangs first.
BlockMap::Block* BlockMap::find(size_t bytes, size_t align) const noexcept {
  const size_t first = list_of(bytes);
  if (Block* const block = search(first, bytes, align, kFewBlocks); block != nullptr) return block;
  const size_t certain = list_of_at_least(bytes + align - kGranuleBytes);
  if (const size_t list = next_list(certain); list != kLists && lists_[list]->fits(bytes, align)) return lists_[list];
  for (size_t list = next_list(first); list < certain || list == kLists - 1; list = next_list(list + 1)) {
    if (Block* const block = search(list, bytes, align, SIZE_MAX); block != nullptr) return block;
  }
  return nullptr;
}

BlockMap::Block* BlockMap::search(size_t list, size_t bytes, size_t align, size_t most_blocks) const noexcept {
  Block* block = lists_[list];
  for (size_t seen = 0; block != nullptr && seen < most_blocks; block = block->next, ++seen) {
    if (block->fits(bytes, align)) return block;
  }
  return nullptr;
}

size_t BlockMap::next_list(size_t first) const noexcept {
  if (first >= kLists) return kLists;
  uint64_t word = filled_[first / 64] & (~uint64_t{0} << first % 64);
  for (size_t i = first / 64;;) {
    if (word != 0) return i * 64 + static_cast<size_t>(std::countr_zero(word));
    if (++i == filled_.size()) return kLists;
    word = filled_[i];
  }
}

void BlockMap::hang(Block* block) noexcept {
  const size_t list = list_of(block->bytes);
  block->is_free = true;
  block->previous = nullptr;
  block->next = lists_[list];
  if (block->next != nullptr) block->next->previous = block;
  lists_[list] = block;
  filled_[list / 64] |= uint64_t{1} << list % 64;
}

void BlockMap::unhang(Block* block) noexcept {
  const size_t list = list_of(block->bytes);
  block->is_free = false;
  (block->previous == nullptr ? lists_[list] : block->previous->next) = block->next;
  if (block->next != nullptr) block->next->previous = block->previous;
  if (lists_[list] == nullptr) filled_[list / 64] &= ~(uint64_t{1} << list % 64);
}

void BlockMap::cut(Block* block, size_t bytes) {
  std::byte* const begin = block->begin + bytes;
  Block* const rest =
      &blocks_
           .try_emplace(begin,
                        Block{.begin = begin, .bytes = block->bytes - bytes, .before = block, .after = block->after})
           .first->second;
  if (rest->after != nullptr) rest->after->before = rest;
  block->after = rest;
  block->bytes = bytes;
  hang(rest);
}

void BlockMap::absorb_next(Block* block) noexcept {
  Block* const next = block->after;
  block->bytes += next->bytes;
  block->after = next->after;
  if (block->after != nullptr) block->after->before = block;
  blocks_.erase(next->begin);
}

}  // namespace shardcomm
