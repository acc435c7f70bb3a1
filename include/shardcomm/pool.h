// A MemoryPool is window memory that grows: blocks of any size are taken and given back in any order, by one rank
// alone, and what lies in them is read in place by peers, as what lies in a window is.
//
//   auto pool = MemoryPool::create(comm, {.initial_bytes = 64 << 20, .label = "activations"});
//   auto block = pool->take(bytes);                     // Result<std::byte*>
//   comm.all_gather({.shard = *block, ...}, stream);
//   pool->give(*block);                                 // when the operation is done
//
// Nothing here is collective: ranks may take other sizes, at other times, in another order, and some may have no pool
// at all. Peers learn of a segment from the first operation whose bytes lie in it, and map it then (tens of
// microseconds); afterwards it is as fast as a window.
#pragma once
#include <cstddef>
#include <memory>
#include <string_view>

#include "shardcomm/communicator.h"
#include "shardcomm/status.h"

namespace shardcomm {

struct PoolOptions {
  size_t initial_bytes = 0;     // of the first segment, made by create(); 0: the first take() makes it
  size_t max_bytes = 0;         // of all segments together, rounded up to pages; 0: what the machine has
  std::string_view label = {};  // the pool's name in messages
};

struct PoolReport {
  size_t reserved_bytes = 0;   // of all segments; pages count as used memory of the system once they have been written
  size_t used_bytes = 0;       // of the blocks that are taken, each rounded up to 64 bytes
  size_t peak_used_bytes = 0;  // the most that used_bytes has been
  size_t segments = 0;
  size_t blocks = 0;  // taken
};

// Belongs to one communicator: to the operations of another one, split() ones included, its blocks are ordinary memory.
// It may be destroyed before or after its communicator; blocks end with the pool, and must not be used by an operation
// in flight when they are given back or the pool is destroyed. Move-only. Any thread, several at once; moving and
// destroying it: one.
//
// A pool holds one open file for each segment (the peers of processes open it when they map it), so it has few and
// large ones: each new segment is as large as all before it together, at most 1 GiB, or as large as the block that
// asked for it. All pools of one communicator have at most 1,024 on a rank. Where ranks are threads of one process no
// file stays open and nothing is mapped twice.
//
// A forked child can neither take nor give (kFailedPrecondition): the memory is shared with its parent.
class SHARDCOMM_EXPORT MemoryPool {
 public:
  // Local. kOutOfMemory, where initial_bytes are more than there is or more than max_bytes.
  static Result<MemoryPool> create(Communicator& comm, const PoolOptions& options = {});
  MemoryPool(MemoryPool&&) noexcept;
  MemoryPool& operator=(MemoryPool&&) noexcept;
  ~MemoryPool();

  // A block of at least `bytes`, at a multiple of `align` (a power of two) and of 64, so that no two blocks share a
  // cache line. Its contents are unspecified: zero where the pool hands out memory for the first time, and otherwise
  // what its last user left. 0 bytes are a block like any other. Takes about 0.1 us where a segment has room;
  // otherwise a segment is made. kOutOfMemory where that is refused, by max_bytes or the machine ("pool 'x' needs
  // 100 GiB, 22.4 GiB available"), after an attempt with its free segments returned; kUnavailable where the process may
  // open no more files. No block has changed then. Once the communicator is gone, peers do not learn of new
  // segments.
  Result<std::byte*> take(size_t bytes, size_t align = 64);
  // Takes back what take() gave, from any thread. kInvalidArgument for any other pointer, and for a block that has been
  // given back already: then nothing has changed.
  Status give(const void* block);

  PoolReport report() const;
  // Returns the segments in which nothing is taken to the system, at once and also where peers have mapped them: their
  // pages are freed, and peers drop their mappings when they next map, make or return a segment. Returns the bytes.
  size_t trim();

  std::string_view label() const noexcept;

  struct Impl;

 private:
  explicit MemoryPool(std::unique_ptr<Impl>) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardcomm
