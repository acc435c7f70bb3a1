// The working memory of the engines, opaque to those who own it (scratch_buffers.h says what it holds).
#pragma once
#include <memory>

namespace shardcomm {

// Whoever executes operations owns one, runs one operation at a time with it, and keeps it for the next, so that
// operations that repeat allocate nothing. It holds a table of at most 64 rows and, once a reduction has attached
// memory, at most attach_chunk_bytes for each rank and each thread of the team.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  struct Buffers;
  Buffers& buffers() noexcept { return *buffers_; }

 private:
  const std::unique_ptr<Buffers> buffers_;
};

}  // namespace shardcomm
