// Part of the door memory/memory.h.
#pragma once
#include <cstddef>
#include <span>
#include <utility>

#include "shardcomm/status.h"

namespace shardcomm {

// Segments side by side, page by page: part i of its addresses is the memory of segment i itself. For reading: a write
// is SIGSEGV. Keeps the memory alive. Const members from any thread.
class Mosaic {
 public:
  // Mapped segments of part_bytes each, a multiple of page_bytes(). They need not stay mapped.
  static Result<Mosaic> create(std::span<std::byte* const> parts, size_t part_bytes);
  Mosaic(Mosaic&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mosaic& operator=(Mosaic&& other) noexcept;
  ~Mosaic();
  const std::byte* data() const noexcept { return base_; }

 private:
  Mosaic(std::byte* base, size_t bytes) noexcept : base_(base), bytes_(bytes) {}
  std::byte* base_;
  size_t bytes_;
};

size_t page_bytes() noexcept;

}  // namespace shardcomm
