#include "zero/pool.h"

#include <algorithm>

namespace shardcomm::zero {

Pool::Pool(std::byte* base, Purpose purpose, MemoryAccount& account, Grow grow)
    : base_(base), purpose_(purpose), account_(account), grow_(std::move(grow)) {}

Pool::~Pool() {
  account_.remove(purpose_, placed_bytes_);
  for (const ExtraBlock& extra : extra_) account_.remove(purpose_, extra.bytes);
}

Pool::ExtraBlock* Pool::extra_of(const std::byte* data) noexcept {
  const auto holds = [&](const ExtraBlock& extra) {
    const std::byte* begin = extra.memory.data;
    return !std::less<>()(data, begin) && std::less<>()(data, begin + extra.bytes);
  };
  const auto found = std::find_if(extra_.begin(), extra_.end(), holds);
  return found == extra_.end() ? nullptr : &*found;
}

Result<Block> Pool::acquire(std::optional<size_t> offset, size_t bytes, StreamRef user) {
  Block block;
  if (offset) {
    block = {base_ + *offset, bytes};
    account_.add(purpose_, bytes);
    placed_bytes_ += bytes;
  } else {
    SHARDCOMM_TRY_ASSIGN(block, acquire_extra(bytes));
  }
  SHARDCOMM_TRY(wait_for_last_use(block, user));
  return block;
}

// The smallest idle one that fits, so that the choice is the same on every rank.
Result<Block> Pool::acquire_extra(size_t bytes) {
  ExtraBlock* best = nullptr;
  for (ExtraBlock& extra : extra_) {
    if (extra.used_bytes == 0 && extra.bytes >= bytes && (best == nullptr || extra.bytes < best->bytes)) best = &extra;
  }
  if (best == nullptr) {
    SHARDCOMM_TRY_ASSIGN(Extra memory, grow_(bytes));
    account_.add(purpose_, bytes);
    best = &extra_.emplace_back(ExtraBlock{std::move(memory), bytes, 0});
  }
  best->used_bytes = bytes;
  return Block{best->memory.data, bytes};
}

Status Pool::wait_for_last_use(const Block& block, StreamRef user) {
  std::erase_if(freed_, [](const Freed& freed) { return freed.last_use.done(); });
  const std::byte* end = block.data + block.bytes;
  for (const Freed& freed : freed_) {
    const bool overlaps = std::less<>()(freed.begin, end) && std::less<const std::byte*>()(block.data, freed.end);
    if (overlaps) SHARDCOMM_TRY(user.wait(freed.last_use));
  }
  return {};
}

void Pool::release(Block& block, const std::optional<Event>& last_use) {
  if (last_use && !last_use->done()) freed_.push_back({block.data, block.data + block.bytes, *last_use});
  if (ExtraBlock* extra = extra_of(block.data)) {
    extra->used_bytes -= block.bytes;
  } else {
    account_.remove(purpose_, block.bytes);
    placed_bytes_ -= block.bytes;
  }
  block = {};
}

void Pool::trim() {
  for (const ExtraBlock& extra : extra_) {
    if (extra.used_bytes == 0) account_.remove(purpose_, extra.bytes);
  }
  std::erase_if(extra_, [](const ExtraBlock& extra) { return extra.used_bytes == 0; });
}

}  // namespace shardcomm::zero
