// How peers' bytes are reached: windows by address, and the staging ring for ordinary memory.
#include <algorithm>

#include "transport/transport.h"

namespace shardcomm {

// Threads of one process read each other's memory by its addresses; no window of theirs is ever remembered.
const MappedWindow* SourceLookup::search(const std::byte* begin, size_t bytes) noexcept {
  if (fabric_.all_same_process_) return nullptr;
  std::lock_guard lock(fabric_.windows_mutex_);
  const auto found = std::find_if(fabric_.windows_.begin(), fabric_.windows_.end(),
                                  [&](const auto& window) { return window->holds(begin, bytes); });
  return found == fabric_.windows_.end() ? nullptr : last_ = found->get();
}

const std::byte* SourceLookup::search(Rank peer, const SourceEntry& entry) noexcept {
  if (fabric_.same_process_[static_cast<size_t>(peer)] != 0) return reinterpret_cast<const std::byte*>(entry.address);
  if (entry.window == kNoWindow) return nullptr;
  std::lock_guard lock(fabric_.windows_mutex_);
  const auto found = std::find_if(fabric_.windows_.begin(), fabric_.windows_.end(),
                                  [&](const auto& window) { return window->id == entry.window; });
  if (found == fabric_.windows_.end()) return nullptr;
  last_ = found->get();
  return last_->at(peer, entry.address);
}

Status Fabric::read(Rank peer, void* target, uint64_t address, size_t bytes) {
  const Status status = transport_->read(peer, target, address, bytes);
  if (status.ok()) return status;
  // A peer that failed first may have ended since: what made it fail is the cause.
  SHARDCOMM_TRY(failure());
  SHARDCOMM_TRY(check_peers());
  return status;
}

uint32_t Fabric::add_window(std::byte* base, size_t bytes, std::vector<uint64_t> raw_base_by_rank,
                            MappedTransport::Mapping mapping) {
  std::lock_guard lock(windows_mutex_);
  const uint32_t id = next_window_++;
  windows_.push_back(
      std::make_unique<MappedWindow>(MappedWindow{id, base, bytes, std::move(raw_base_by_rank), std::move(mapping)}));
  windows_version_.fetch_add(1, std::memory_order_release);
  return id;
}

void Fabric::close_window(uint32_t id) noexcept {
  std::lock_guard lock(windows_mutex_);
  windows_version_.fetch_add(1, std::memory_order_release);
  std::erase_if(windows_, [id](const auto& window) { return window->id == id; });
}

Result<std::byte*> Fabric::stage_slot(uint64_t chunk, TimeLimit& limit) {
  const uint64_t number = staged_base_ + chunk;
  if (number >= kStagingSlots) {
    for (int step = 1; step < size_; ++step) {
      const Rank peer = (rank_ + step) % size_;
      SHARDCOMM_TRY(wait(consumed_signals(&block(peer))[rank_], number + 1 - kStagingSlots, peer, limit));
    }
  }
  return reinterpret_cast<std::byte*>(&own()) + staging_offset(size_) + number % kStagingSlots * slot_bytes_;
}

void Fabric::stage_publish(uint64_t chunk) noexcept { raise(own().staged, staged_base_ + chunk + 1); }

Result<const std::byte*> Fabric::staged(Rank peer, uint64_t chunk, TimeLimit& limit) {
  const uint64_t number = consumed_base_[static_cast<size_t>(peer)] + chunk;
  SHARDCOMM_TRY(wait(block(peer).staged, number + 1, peer, limit));
  return reinterpret_cast<const std::byte*>(&block(peer)) + staging_offset(size_) +
         number % kStagingSlots * slot_bytes_;
}

void Fabric::stage_release(Rank peer, uint64_t chunk) noexcept {
  const auto p = static_cast<size_t>(peer);
  raise(consumed_signals(&own())[peer], consumed_base_[p] + chunk + 1);
  consumed_now_[p] = chunk + 1;
}

void Fabric::stage_finish(uint64_t own_chunks) noexcept {
  staged_base_ += own_chunks;
  for (size_t p = 0; p < consumed_base_.size(); ++p) {
    consumed_base_[p] += consumed_now_[p];
    consumed_now_[p] = 0;
  }
}

}  // namespace shardcomm
