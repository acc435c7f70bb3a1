// Announcements in memory that all ranks map.
#include "transport/mapped_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "base/processor.h"

namespace shardcomm {

void MappedControl::format(std::byte* memory, Rank rank, int size) noexcept {
  auto* block = new (memory) ControlBlock;  // members without initialisers: the pages stay zero
  block->layout = kControlLayout;
  block->rank = rank;
  block->size = size;
}

Result<std::unique_ptr<MappedControl>> MappedControl::create(const Setup& setup, PeerMapping blocks_by_rank) {
  std::unique_ptr<MappedControl> control(new MappedControl(setup, std::move(blocks_by_rank)));
  for (Rank r = 0; r < setup.size; ++r) {
    auto* block = std::launder(reinterpret_cast<ControlBlock*>(control->mapping_.by_rank[static_cast<size_t>(r)]));
    if (block->layout != kControlLayout || block->rank != r || block->size != setup.size) {
      return Status(Code::kFailedPrecondition,
                    fmt::format("rank {} has control block layout {}, rank {}, size {}; rank {} expects {}, {}, {}", r,
                                block->layout, block->rank, block->size, setup.rank, kControlLayout, r, setup.size));
    }
    control->blocks_.push_back(block);
  }
  return control;
}

MappedControl::~MappedControl() {
  const bool complete = blocks_.size() == static_cast<size_t>(setup_.size);
  if (!complete || !birthplace_.is_here()) return;  // a forked child does not leave for its parent
  own().progress.departed.store(1, std::memory_order_release);
  wake_all();
}

void MappedControl::prefetch_next_message() const noexcept {
  constexpr size_t kLine = 64, kMostLines = 16;  // about as many as a core fetches at the same time
  const auto* message = reinterpret_cast<const std::byte*>(&own().messages[(sequence_ + 1) & 1]);
  const size_t end = std::min(offsetof(Message, payload) + payload_bytes_, kMostLines * kLine);
  for (size_t line = 0; line < end; line += kLine) fetch_to_write(message + line);
}

std::span<std::byte> MappedControl::payload() noexcept {
  Message& message = own().messages[(sequence_ + 1) & 1];
  return {message.payload, sizeof message.payload};
}

void MappedControl::announce(const Announcement& announcement) noexcept {
  ++sequence_;
  Message& message = own().messages[sequence_ & 1];
  Note& note = own().notes[sequence_ & 1];
  note.epoch = announcement.epoch;
  own().progress.started.store(announcement.epoch, std::memory_order_relaxed);
  own().progress.core.store(core_of_this_thread(), std::memory_order_relaxed);
  const size_t label_bytes = std::min(announcement.label.size(), kLabelBytes - 1);
  std::copy_n(announcement.label.data(), label_bytes, note.label);
  note.label[label_bytes] = '\0';
  announced_ = announcement.signature;
  phase_ = announcement.phase;
  payload_bytes_ = announcement.payload_bytes;
  message.payload_bytes = static_cast<uint32_t>(payload_bytes_);
  message.phase = phase_;
  message.signature = announced_;
  raise(message.sequence, sequence_);
}

Status MappedControl::collect(TimeLimit& limit) {
  bool agreed = true;
  for (int step = 1; step < setup_.size; ++step) {
    const Rank peer = (setup_.rank + step) % setup_.size;
    const Message& message = block(peer).messages[sequence_ & 1];
    SHARDCOMM_TRY(wait(message.sequence, sequence_, peer, limit));
    agreed = agreed && message.signature == announced_ && message.phase == phase_;
  }
  prefetch_next_message();
  return agreed ? Status() : find_disagreement();
}

std::span<const std::byte> MappedControl::payload_of(Rank peer) const noexcept {
  const Message& message = block(peer).messages[sequence_ & 1];
  return {message.payload, message.payload_bytes};
}

void MappedControl::finish_reading() noexcept { raise(own().done, sequence_); }

Status MappedControl::await_reader(Rank peer, TimeLimit& limit) {
  return wait(block(peer).done, sequence_, peer, limit);
}

void MappedControl::progress(uint64_t finished_epoch) noexcept {
  own().progress.finished.store(finished_epoch, std::memory_order_relaxed);
}

}  // namespace shardcomm
