// Shared pages mapped a second time, next to those of other segments.
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>

#include "base/text.h"
#include "memory/mosaic.h"

namespace shardcomm {
namespace {

// mremap of 0 bytes of a shared mapping leaves it and maps the same pages again (mremap(2)); no descriptor is needed.
Status map_again(std::byte* part, size_t bytes, std::byte* target) {
  if (mremap(part, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, target) != MAP_FAILED) return {};
  return Status::native(Origin::kErrno, errno, fmt::format("mremap {}", readable_bytes(bytes)));
}

}  // namespace

Result<Mosaic> Mosaic::create(std::span<std::byte* const> parts, size_t part_bytes) {
  size_t bytes = 0;
  if (part_bytes % page_bytes() != 0 || __builtin_mul_overflow(part_bytes, parts.size(), &bytes) || bytes == 0) {
    return Status(Code::kInvalidArgument, fmt::format("{} parts of {} bytes side by side: a part must be whole pages",
                                                      parts.size(), part_bytes));
  }
  void* const base = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return Status::native(Origin::kErrno, errno, fmt::format("mmap {}", readable_bytes(bytes)));
  Mosaic mosaic(static_cast<std::byte*>(base), bytes);
  for (size_t i = 0; i < parts.size(); ++i)
    SHARDCOMM_TRY(map_again(parts[i], part_bytes, mosaic.base_ + i * part_bytes));
  if (mprotect(base, bytes, PROT_READ) != 0) return Status::native(Origin::kErrno, errno, "mprotect of a mosaic");
  (void)madvise(base, bytes, MADV_HUGEPAGE);  // advice: it may fail, and only where parts are multiples of huge pages
  return mosaic;
}

Mosaic& Mosaic::operator=(Mosaic&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mosaic::~Mosaic() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

}  // namespace shardcomm
