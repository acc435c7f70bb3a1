#include "transport/mapped_mailbox.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "base/futex.h"
#include "base/processor.h"

namespace shardcomm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kSlots = 16;  // posts from one rank to another that have not been popped
constexpr uint64_t kTakenTogether = 4;
constexpr int kPollsPerLook = 16;  // calls of `ready` between looks at the clock
constexpr int kTurns = 64;         // that a rank leaves to others, at least, before it sleeps
constexpr std::chrono::milliseconds kLongestYield{1};

}  // namespace

// The payload follows the envelope without a gap, so that a small message shares their cache line.
struct alignas(64) MappedMailbox::Slot {
  std::atomic<uint64_t> sequence;  // number of the post that it holds, from 1
  Envelope envelope;
  std::byte payload[kMailPayloadBytes + 40];
};

struct alignas(64) MappedMailbox::Doorbell {
  std::atomic<uint32_t> rings;
  std::atomic<uint32_t> sleepers;  // written by the owner's threads only
};

struct alignas(64) MappedMailbox::Receipts {
  std::atomic<uint64_t> taken;
  alignas(64) std::atomic<uint64_t> acknowledged[kMailTickets];
};

size_t MappedMailbox::bytes_for(int size) noexcept {
  return sizeof(Doorbell) + static_cast<size_t>(size) * (sizeof(Receipts) + kSlots * sizeof(Slot));
}

MappedMailbox::MappedMailbox(MappedControl& control, size_t offset_bytes)
    : control_(control),
      offset_bytes_(offset_bytes),
      outboxes_(std::make_unique<Outbox[]>(static_cast<size_t>(control.size()))),
      popped_(std::make_unique<std::atomic<uint64_t>[]>(static_cast<size_t>(control.size()))) {}

std::byte* MappedMailbox::area(Rank owner) const noexcept {
  return reinterpret_cast<std::byte*>(&control_.block(owner)) + offset_bytes_;
}

MappedMailbox::Doorbell& MappedMailbox::doorbell(Rank owner) const noexcept {
  return *reinterpret_cast<Doorbell*>(area(owner));
}

MappedMailbox::Receipts& MappedMailbox::receipts(Rank owner, Rank sender) const noexcept {
  return reinterpret_cast<Receipts*>(area(owner) + sizeof(Doorbell))[sender];
}

MappedMailbox::Slot& MappedMailbox::slot(Rank sender, Rank receiver, uint64_t number) const noexcept {
  std::byte* const slots = area(sender) + sizeof(Doorbell) + static_cast<size_t>(control_.size()) * sizeof(Receipts);
  return reinterpret_cast<Slot*>(slots)[static_cast<size_t>(receiver) * kSlots + number % kSlots];
}

void MappedMailbox::ring(Rank peer) noexcept {
  Doorbell& bell = doorbell(peer);
  if (bell.sleepers.load(std::memory_order_seq_cst) == 0) return;
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(&bell.rings, kWakeAll);
}

bool MappedMailbox::try_post(Rank peer, const Envelope& envelope, std::span<const std::byte> payload) noexcept {
  Outbox& outbox = outboxes_[static_cast<size_t>(peer)];
  {
    const std::lock_guard lock(outbox.mutex);
    const uint64_t number = outbox.posted + 1;
    if (outbox.taken + kSlots < number) {
      outbox.taken = receipts(peer, control_.rank()).taken.load(std::memory_order_seq_cst);
      if (outbox.taken + kSlots < number) return false;
    }
    outbox.posted = number;
    Slot& target = slot(control_.rank(), peer, number);
    target.envelope = envelope;
    if (!payload.empty()) std::memcpy(target.payload, payload.data(), payload.size());
    target.sequence.store(number, std::memory_order_seq_cst);
    // The peer still holds the next slot's line from the ring's last round, and regaining it costs a signal latency.
    fetch_to_write(&slot(control_.rank(), peer, number + 1));
  }
  ring(peer);
  return true;
}

bool MappedMailbox::has_mail(Rank peer) const noexcept {
  const uint64_t number = popped_[static_cast<size_t>(peer)].load(std::memory_order_relaxed) + 1;
  return slot(peer, control_.rank(), number).sequence.load(std::memory_order_seq_cst) >= number;
}

std::optional<Mailbox::Incoming> MappedMailbox::peek(Rank peer) noexcept {
  const uint64_t number = popped_[static_cast<size_t>(peer)].load(std::memory_order_relaxed) + 1;
  const Slot& source = slot(peer, control_.rank(), number);
  if (source.sequence.load(std::memory_order_acquire) != number) return std::nullopt;
  return Incoming{source.envelope, source.payload};
}

void MappedMailbox::pop(Rank peer) noexcept {
  std::atomic<uint64_t>& popped = popped_[static_cast<size_t>(peer)];
  const uint64_t number = popped.load(std::memory_order_relaxed) + 1;
  popped.store(number, std::memory_order_relaxed);
  if (number % kTakenTogether == 0) {
    receipts(control_.rank(), peer).taken.store(number, std::memory_order_seq_cst);
    ring(peer);  // it may wait for room
  }
  ring(control_.rank());  // another thread may wait for what this one has taken for it
}

void MappedMailbox::acknowledge(Rank peer, uint16_t ticket, uint64_t count) noexcept {
  auto& sum = receipts(control_.rank(), peer).acknowledged[ticket];
  sum.store(sum.load(std::memory_order_relaxed) + count, std::memory_order_seq_cst);
  ring(peer);
}

uint64_t MappedMailbox::acknowledgements(Rank peer, uint16_t ticket) const noexcept {
  return receipts(peer, control_.rank()).acknowledged[ticket].load(std::memory_order_seq_cst);
}

bool MappedMailbox::has_left(Rank peer) const noexcept {
  return control_.block(peer).progress.departed.load(std::memory_order_acquire) != 0;
}

// Where ranks outnumber cores, the peer may need this very core.
bool MappedMailbox::spin(const std::function<bool()>& ready, Deadline deadline) const {
  const bool gives_way = control_.is_oversubscribed();
  const auto begin = Clock::now();
  for (int turn = 0;; ++turn) {
    for (int poll = 0; poll < (gives_way ? 1 : kPollsPerLook); ++poll) {
      if (ready()) return true;
      if (!gives_way) pause();
    }
    const auto now = Clock::now();
    const auto waited = now - begin;
    const bool enough = gives_way ? waited >= kLongestYield || (turn >= kTurns && waited >= control_.spin_time())
                                  : waited >= control_.spin_time();
    if (enough || now >= deadline) return false;
    if (gives_way) sched_yield();
  }
}

bool MappedMailbox::wait_until(const std::function<bool()>& ready, Deadline deadline) {
  if (spin(ready, deadline)) return true;
  Doorbell& bell = doorbell(control_.rank());
  for (;;) {
    bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t rings = bell.rings.load(std::memory_order_seq_cst);
    const bool is_ready = ready();
    const bool is_late = !is_ready && futex_wait(&bell.rings, rings, deadline) == FutexResult::kTimedOut;
    bell.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (is_ready) return true;
    if (is_late) return ready();
  }
}

}  // namespace shardcomm
