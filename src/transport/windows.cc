#include "transport/windows.h"

#include <algorithm>

namespace shardcomm {

Windows::Windows(std::vector<uint8_t> same_process_by_rank, std::unique_ptr<SegmentDirectory> segments)
    : same_process_(std::move(same_process_by_rank)),
      is_one_process_(std::all_of(same_process_.begin(), same_process_.end(), [](uint8_t same) { return same != 0; })),
      segments_(std::move(segments)) {}

uint32_t Windows::add(Share share) {
  std::lock_guard lock(mutex_);
  const uint32_t id = next_id_++;
  windows_.push_back(std::make_unique<MappedWindow>(MappedWindow{.id = id,
                                                                 .base = share.base,
                                                                 .bytes = share.bytes,
                                                                 .raw_base_by_rank = std::move(share.raw_base_by_rank),
                                                                 .mapping = std::move(share.mapping)}));
  version_.fetch_add(1, std::memory_order_release);
  return id;
}

void Windows::close(uint32_t id) noexcept {
  std::lock_guard lock(mutex_);
  version_.fetch_add(1, std::memory_order_release);
  std::erase_if(windows_, [id](const auto& window) { return window->id == id; });
}

Result<uint32_t> Windows::publish(const Allocation& segment) {
  if (is_one_process_ || segments_ == nullptr) return kNoWindow;
  SHARDCOMM_TRY_ASSIGN(const uint32_t id, segments_->publish(segment));
  std::lock_guard lock(mutex_);
  windows_.push_back(std::make_unique<MappedWindow>(
      MappedWindow{.id = id, .base = segment.base, .bytes = segment.bytes, .raw_base_by_rank = {}, .mapping = {}}));
  version_.fetch_add(1, std::memory_order_release);
  return id;
}

void Windows::withdraw(uint32_t id) noexcept {
  close(id);
  segments_->withdraw(id);
}

// No window is remembered where all ranks are threads of one process.
const MappedWindow* SourceLookup::search(const std::byte* begin, size_t bytes) noexcept {
  if (windows_.is_one_process()) return nullptr;
  std::lock_guard lock(windows_.mutex_);
  const auto found = std::find_if(windows_.windows_.begin(), windows_.windows_.end(), [&](const auto& window) {
    // Nothing is read of 0 bytes, so their segment may go while the operation runs.
    return window->holds(begin, bytes) && (bytes != 0 || window->has_counterparts());
  });
  return found == windows_.windows_.end() ? nullptr : last_ = found->get();
}

const std::byte* SourceLookup::search(Rank peer, const SourceEntry& entry) noexcept {
  if (windows_.same_process_[static_cast<size_t>(peer)] != 0) return reinterpret_cast<const std::byte*>(entry.address);
  if (entry.window == kNoWindow) return nullptr;
  std::lock_guard lock(windows_.mutex_);
  const auto found = std::find_if(windows_.windows_.begin(), windows_.windows_.end(),
                                  [&](const auto& window) { return window->id == entry.window; });
  if (found == windows_.windows_.end()) return nullptr;
  last_ = found->get();
  return last_->locate(peer, entry.address);
}

const std::byte* SourceLookup::locate_in_segment(Rank peer, const SourceEntry& entry) noexcept {
  if (windows_.same_process_[static_cast<size_t>(peer)] != 0) return reinterpret_cast<const std::byte*>(entry.address);
  if (windows_.segments_ == nullptr) return nullptr;
  if (!reads_segments_) {
    windows_.segments_->enter();
    reads_segments_ = true;
  }
  return windows_.segments_->locate(peer, entry.window, entry.address);
}

}  // namespace shardcomm
