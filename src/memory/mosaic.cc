// Shared pages mapped a second time, next to those of other segments.
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>

#include "base/text.h"
#include "memory/memory.h"

namespace shardcomm {
namespace {

// mremap of 0 bytes of a shared mapping leaves it and maps the same pages again (mremap(2)); no descriptor is needed.
Status map_again(const SegmentView& part, std::byte* target) {
  const size_t bytes = part.size_bytes();
  if (mremap(part.data(), 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, target) != MAP_FAILED) return {};
  return Status::native(Origin::kErrno, errno, fmt::format("mremap {}", readable_bytes(bytes)));
}

}  // namespace

Result<Mosaic> Mosaic::create(std::span<const SegmentView> parts) {
  const size_t part_bytes = parts.empty() ? 0 : parts.front().size_bytes();
  for (const SegmentView& part : parts) {
    if (part.size_bytes() == part_bytes && part_bytes % page_bytes() == 0) continue;
    return Status(Code::kInvalidArgument,
                  fmt::format("{} bytes beside {} bytes are no pages side by side", part.size_bytes(), part_bytes));
  }
  size_t bytes = 0;
  if (__builtin_mul_overflow(part_bytes, parts.size(), &bytes) || bytes == 0) {
    return Status(Code::kInvalidArgument, fmt::format("{} parts of {} bytes side by side", parts.size(), part_bytes));
  }
  void* const base = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return Status::native(Origin::kErrno, errno, fmt::format("mmap {}", readable_bytes(bytes)));
  Mosaic mosaic(static_cast<std::byte*>(base), bytes);
  for (size_t i = 0; i < parts.size(); ++i) SHARDCOMM_TRY(map_again(parts[i], mosaic.base_ + i * part_bytes));
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
