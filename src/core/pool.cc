// MemoryPool: segments of this rank, published in the fabric, divided by a BlockMap.
#include "shardcomm/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <string>
#include <vector>

#include "base/birthplace.h"
#include "base/text.h"
#include "core/core.h"

namespace shardcomm {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kLeastSegment = size_t{1} << 20;
constexpr size_t kLargestStep = size_t{1} << 30;  // segments are larger than that only for blocks that are

size_t whole_pages(size_t bytes) noexcept {
  return bytes > SIZE_MAX - kPageBytes ? bytes : (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// More than any process has addresses for.
Status too_large(size_t bytes, std::string_view name) {
  const Status refused = check_memory_for(bytes, name);
  if (!refused.ok()) return refused;
  return Status(Code::kOutOfMemory, fmt::format("{} needs {}, which no process can have", name, readable_bytes(bytes)));
}

}  // namespace

struct MemoryPool::Impl {
  Impl(std::weak_ptr<Fabric> users, const PoolOptions& options)
      : fabric(std::move(users)),
        label(options.label),
        name(fmt::format("pool '{}'", label)),
        most(whole_pages(options.max_bytes)) {}
  ~Impl() {
    for (PoolSegment& old : segments) end(old);
  }

  struct PoolSegment {
    Segment segment;
    uint32_t id;  // kNoWindow: not published
  };

  Status check_here() const;
  Status grow(size_t least_bytes);
  Status add_segment(size_t bytes);
  void end(PoolSegment& old) noexcept;
  size_t trim();

  const std::weak_ptr<Fabric> fabric;
  const std::string label, name;
  const size_t most;  // bytes; 0: no limit
  const Birthplace birthplace;

  std::mutex mutex;  // of everything below
  std::vector<PoolSegment> segments;
  BlockMap blocks;
  PoolReport counts;
};

// In a forked child, whose memory is its parent's.
Status MemoryPool::Impl::check_here() const {
  if (birthplace.is_here()) [[likely]]
    return {};
  return Status(Code::kFailedPrecondition,
                fmt::format("{}: this process was forked after the pool was made, which only the process that made it "
                            "can use",
                            name));
}

// Makes room for a block of so many bytes. As much as there is already, so that n bytes are at most log n segments; or
// just what the block needs, where that is refused.
Status MemoryPool::Impl::grow(size_t least_bytes) {
  const size_t least = whole_pages(least_bytes);
  const auto left = [this] { return most == 0 ? SIZE_MAX : most - std::min(most, counts.reserved_bytes); };
  if (least > left()) trim();
  if (least > left()) {
    return Status(Code::kOutOfMemory,
                  fmt::format("{} needs {}, {} of its {} are available", name, readable_bytes(least_bytes),
                              readable_bytes(left()), readable_bytes(most)));
  }
  const size_t step = std::clamp(whole_pages(counts.reserved_bytes), kLeastSegment, kLargestStep);
  if (const size_t wanted = std::min(step, left() / kPageBytes * kPageBytes); wanted > least) {
    if (add_segment(wanted).ok()) return {};
  }
  const Status status = add_segment(least);
  return status.ok() || trim() == 0 ? status : add_segment(least);
}

Status MemoryPool::Impl::add_segment(size_t bytes) {
  SHARDCOMM_TRY_ASSIGN(Segment segment, Segment::create(bytes, name));
  uint32_t id = kNoWindow;
  if (const auto users = fabric.lock(); users != nullptr) {
    Result<uint32_t> published = users->windows->publish(segment.allocation());
    if (!published.ok()) return published.status().context(fmt::format("{} grows", name));
    id = *published;
  }
  if (id == kNoWindow) segment.close_fd();
  blocks.add(segment.data(), bytes);
  segments.push_back({std::move(segment), id});
  counts.reserved_bytes += bytes;
  ++counts.segments;
  return {};
}

// Withdrawn first, so that no peer maps what is about to go.
void MemoryPool::Impl::end(PoolSegment& old) noexcept {
  if (old.id == kNoWindow || !birthplace.is_here()) return;
  if (const auto users = fabric.lock(); users != nullptr) users->windows->withdraw(old.id);
  old.segment.free_pages();
}

size_t MemoryPool::Impl::trim() {
  const size_t before = counts.reserved_bytes;
  std::erase_if(segments, [this](PoolSegment& old) {
    if (!blocks.remove(old.segment.data())) return false;
    counts.reserved_bytes -= old.segment.size_bytes();
    --counts.segments;
    end(old);
    return true;
  });
  return before - counts.reserved_bytes;
}

MemoryPool::MemoryPool(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
MemoryPool::MemoryPool(MemoryPool&&) noexcept = default;
MemoryPool& MemoryPool::operator=(MemoryPool&&) noexcept = default;
MemoryPool::~MemoryPool() = default;
std::string_view MemoryPool::label() const noexcept { return impl_->label; }

Result<MemoryPool> MemoryPool::create(Communicator& comm, const PoolOptions& options) {
  const Core& core = *comm.impl_->core;
  SHARDCOMM_TRY(core.health.here());
  auto impl = std::make_unique<Impl>(core.fabric, options);
  if (impl->most != 0 && options.initial_bytes > impl->most) {
    return Status(Code::kOutOfMemory, fmt::format("{} needs {}, it may have {}", impl->name,
                                                  readable_bytes(options.initial_bytes), readable_bytes(impl->most)));
  }
  if (options.initial_bytes > BlockMap::kMostBytes) return too_large(options.initial_bytes, impl->name);
  if (options.initial_bytes != 0) SHARDCOMM_TRY(impl->add_segment(whole_pages(options.initial_bytes)));
  return MemoryPool(std::move(impl));
}

Result<std::byte*> MemoryPool::take(size_t bytes, size_t align) {
  Impl& pool = *impl_;
  SHARDCOMM_TRY(pool.check_here());
  if (!std::has_single_bit(align))
    return Status(Code::kInvalidArgument, fmt::format("{}: align {} is not a power of two", pool.name, align));
  const std::lock_guard lock(pool.mutex);
  align = std::max(align, BlockMap::kGranuleBytes);
  if (bytes > BlockMap::kMostBytes || align > BlockMap::kMostBytes - bytes)
    return too_large(std::max(bytes, align), pool.name);
  std::byte* block = pool.blocks.take(bytes, align);
  if (block == nullptr) {
    SHARDCOMM_TRY(pool.grow(BlockMap::rounded(bytes) + (align > kPageBytes ? align - kPageBytes : 0)));
    block = pool.blocks.take(bytes, align);
  }
  pool.counts.used_bytes += BlockMap::rounded(bytes);
  pool.counts.peak_used_bytes = std::max(pool.counts.peak_used_bytes, pool.counts.used_bytes);
  ++pool.counts.blocks;
  return block;
}

Status MemoryPool::give(const void* block) {
  Impl& pool = *impl_;
  SHARDCOMM_TRY(pool.check_here());
  const std::lock_guard lock(pool.mutex);
  const size_t bytes = pool.blocks.give(block);
  if (bytes == 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: {} is not a block that is taken (it was given back already, or is not of this pool)",
                              pool.name, block));
  }
  pool.counts.used_bytes -= bytes;
  --pool.counts.blocks;
  return {};
}

PoolReport MemoryPool::report() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->counts;
}

size_t MemoryPool::trim() {
  if (!impl_->check_here().ok()) return 0;
  const std::lock_guard lock(impl_->mutex);
  return impl_->trim();
}

}  // namespace shardcomm
