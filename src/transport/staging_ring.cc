#include "transport/staging_ring.h"

#include "transport/mapped_control.h"

namespace shardcomm {

StagingRing::StagingRing(MappedControl& control, size_t slot_bytes)
    : control_(control),
      slot_bytes_(slot_bytes),
      released_base_(static_cast<size_t>(control.size())),
      released_now_(static_cast<size_t>(control.size())) {}

std::byte* StagingRing::at(Rank owner, uint64_t number) const noexcept {
  auto* const block = reinterpret_cast<std::byte*>(&control_.block(owner));
  return block + staging_offset(control_.size()) + number % kStagingSlots * slot_bytes_;
}

Result<std::byte*> StagingRing::slot(uint64_t chunk, TimeLimit& limit) {
  const uint64_t number = published_base_ + chunk;
  const Rank me = control_.rank();
  if (number >= kStagingSlots) {
    for (int step = 1; step < control_.size(); ++step) {
      const Rank peer = (me + step) % control_.size();
      const Signal& consumed = consumed_signals(&control_.block(peer))[me];
      SHARDCOMM_TRY(control_.wait(consumed, number + 1 - kStagingSlots, peer, limit));
    }
  }
  return at(me, number);
}

void StagingRing::publish(uint64_t chunk) noexcept {
  control_.raise(control_.own().staged, published_base_ + chunk + 1);
}

Result<const std::byte*> StagingRing::take(Rank owner, uint64_t chunk, TimeLimit& limit) {
  const uint64_t number = released_base_[static_cast<size_t>(owner)] + chunk;
  SHARDCOMM_TRY(control_.wait(control_.block(owner).staged, number + 1, owner, limit));
  return static_cast<const std::byte*>(at(owner, number));
}

void StagingRing::release(Rank owner, uint64_t chunk) noexcept {
  const auto k = static_cast<size_t>(owner);
  control_.raise(consumed_signals(&control_.own())[owner], released_base_[k] + chunk + 1);
  released_now_[k] = chunk + 1;
}

void StagingRing::finish(uint64_t own_chunks) noexcept {
  published_base_ += own_chunks;
  for (size_t k = 0; k < released_base_.size(); ++k) {
    released_base_[k] += released_now_[k];
    released_now_[k] = 0;
  }
}

}  // namespace shardcomm
