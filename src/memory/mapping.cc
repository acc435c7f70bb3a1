// Mapping and unmapping, and the process's own segments by token.
#include "memory/mapping.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <map>
#include <mutex>

#include "base/text.h"

namespace shardcomm {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

// Holds no mapping alive; what has ended is swept out when the next one comes.
struct Published {
  std::mutex mutex;
  std::map<std::array<uint64_t, 2>, std::weak_ptr<Mapping>> by_token;
};

Published& published() {
  static auto* const instance = new Published;
  return *instance;
}

}  // namespace

size_t page_bytes() noexcept {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t file_bytes_of(size_t segment_bytes) noexcept {
  const size_t page = page_bytes();
  if (segment_bytes > std::numeric_limits<size_t>::max() / 2) return 0;
  return (segment_bytes + page - 1) / page * page + page;
}

Result<std::shared_ptr<Mapping>> Mapping::map(int fd, size_t segment_bytes) {
  const size_t bytes = file_bytes_of(segment_bytes);
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    return Status::native(Origin::kErrno, errno, fmt::format("mmap {}", readable_bytes(bytes)));
  }
  // Advice: where huge pages of shared memory are not allowed this fails, and nothing is lost.
  if (bytes >= kHugePageBytes) (void)madvise(base, bytes, MADV_HUGEPAGE);
  return std::shared_ptr<Mapping>(new Mapping(static_cast<std::byte*>(base), bytes));
}

Mapping::~Mapping() { munmap(base_, file_bytes_); }

SegmentTrailer* Mapping::trailer() const noexcept {
  return reinterpret_cast<SegmentTrailer*>(base_ + file_bytes_ - page_bytes());
}

void publish_mapping(const Token& segment, const std::shared_ptr<Mapping>& mapping) {
  Published& all = published();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.by_token, [](const auto& entry) { return entry.second.expired(); });
  all.by_token[segment.words] = mapping;
}

std::shared_ptr<Mapping> find_mapping(const Token& segment) {
  Published& all = published();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_token.find(segment.words);
  return found == all.by_token.end() ? nullptr : found->second.lock();
}

}  // namespace shardcomm
