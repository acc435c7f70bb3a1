// Memory for what units hold only while they are in flight. A block goes back with an Event, the last use of its bytes;
// whoever gets the same bytes next waits for it, on his own stream. So reuse is ordered and nobody blocks.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "shardcomm/stream.h"
#include "zero/memory_account.h"

namespace shardcomm::zero {

struct Block {
  std::byte* data = nullptr;  // null: none
  size_t bytes = 0;
};

// Thread rule: that of the engine.
class Pool {
 public:
  struct Extra {
    std::byte* data = nullptr;
    std::shared_ptr<void> owner;
  };
  using Grow = std::function<Result<Extra>(size_t bytes)>;

  // Blocks lie from `base` on, where the caller places them; where he has no place for one, in what `grow` gives (kept
  // for reuse until trim). Placed blocks are counted while they are out, extra memory as long as it exists.
  Pool(std::byte* base, Purpose purpose, MemoryAccount& account, Grow grow);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();

  // What `user` enqueues from here on may use the block.
  Result<Block> acquire(std::optional<size_t> offset, size_t bytes, StreamRef user);
  // `block` may be a part of what acquire gave; each byte goes back once.
  void release(Block& block, const std::optional<Event>& last_use);
  // Returns idle extra memory. Only while nothing is in flight.
  void trim();

 private:
  struct Freed {
    std::byte* begin;
    std::byte* end;
    Event last_use;
  };
  struct ExtraBlock {
    Extra memory;
    size_t bytes;
    size_t used_bytes;
  };

  Result<Block> acquire_extra(size_t bytes);
  Status wait_for_last_use(const Block& block, StreamRef user);
  ExtraBlock* extra_of(const std::byte* data) noexcept;  // null: it was placed

  std::byte* base_;
  size_t placed_bytes_ = 0;
  Purpose purpose_;
  MemoryAccount& account_;
  Grow grow_;
  std::vector<Freed> freed_;  // whose last use may still be to come
  std::vector<ExtraBlock> extra_;
};

}  // namespace shardcomm::zero
