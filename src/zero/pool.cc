#include "zero/pool.h"

#include <algorithm>

namespace shardcomm::zero {

Pool::Pool(std::byte* base, size_t capacity, Purpose purpose, MemoryAccount& account, Grow grow)
    : base_(base), arena_(capacity), purpose_(purpose), account_(account), grow_(std::move(grow)) {}

Pool::~Pool() {
  account_.remove(purpose_, arena_.used_bytes());
  for (const ExtraBlock& extra : extra_) account_.remove(purpose_, extra.bytes);
}

bool Pool::in_arena(const std::byte* data) const noexcept {
  return std::less_equal<>()(base_, data) && std::less<>()(data, base_ + arena_.capacity());
}

Result<Block> Pool::acquire(size_t bytes, StreamRef user) {
  Block block;
  if (const auto offset = arena_.allocate(bytes)) {
    block = {base_ + *offset, bytes};
    account_.add(purpose_, bytes);
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
    if (extra.idle && extra.bytes >= bytes && (best == nullptr || extra.bytes < best->bytes)) best = &extra;
  }
  if (best == nullptr) {
    SHARDCOMM_TRY_ASSIGN(Extra memory, grow_(bytes));
    account_.add(purpose_, bytes);
    best = &extra_.emplace_back(ExtraBlock{std::move(memory), bytes, true});
  }
  best->idle = false;
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
  if (in_arena(block.data)) {
    account_.remove(purpose_, block.bytes);
    arena_.release(static_cast<size_t>(block.data - base_));
  } else {
    for (ExtraBlock& extra : extra_) extra.idle = extra.idle || extra.memory.data == block.data;
  }
  block = {};
}

void Pool::trim() {
  for (const ExtraBlock& extra : extra_) {
    if (extra.idle) account_.remove(purpose_, extra.bytes);
  }
  std::erase_if(extra_, [](const ExtraBlock& extra) { return extra.idle; });
}

}  // namespace shardcomm::zero
