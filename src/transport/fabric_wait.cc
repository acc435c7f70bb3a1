// How a fabric waits, and how it fails: spin for a bounded time, then sleep in the kernel on the signal itself. Every
// wait watches the abort word, the peers' processes and its deadline.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "base/futex.h"
#include "base/processor.h"
#include "transport/transport.h"

namespace shardcomm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollsPerLook = 64;                      // signal loads between looks at the clock and the abort word
constexpr std::chrono::milliseconds kSleepSlice{50};   // a sleeper looks at its peers this often
constexpr std::chrono::milliseconds kTellTime{2};      // to write a failure down
constexpr int kTurns = 64;                             // that a rank leaves to others, at least
constexpr std::chrono::milliseconds kLongestYield{1};  // but no longer than this

const std::atomic<uint32_t>* bell(const Signal& signal) noexcept {
  return reinterpret_cast<const std::atomic<uint32_t>*>(&signal.value);  // the low half, see control_block.h
}

// Whether nobody had told anything there.
bool tell(AbortWord& word, const Status& story) noexcept {
  uint32_t none = 0;
  if (!word.state.compare_exchange_strong(none, 1, std::memory_order_acq_rel)) return false;
  word.code = static_cast<int32_t>(story.code());
  const size_t bytes = std::min(story.message().size(), kAbortTextBytes - 1);
  std::memcpy(word.text, story.message().data(), bytes);
  word.text[bytes] = '\0';
  word.state.store(2, std::memory_order_seq_cst);
  return true;
}

Status story_in(const AbortWord& word) {
  if (word.state.load(std::memory_order_acquire) != 2) return {};
  return Status(static_cast<Code>(word.code), std::string(word.text, strnlen(word.text, kAbortTextBytes)));
}

// What somebody tells there; ok where he does not get to it, having ended.
Status told(const AbortWord& word) {
  const auto end = Clock::now() + kTellTime;
  while (word.state.load(std::memory_order_acquire) == 1 && Clock::now() < end) sched_yield();
  return story_in(word);
}

}  // namespace

// Sequentially consistent on both sides: either the waiter sees the value, or this sees the waiter.
void Fabric::raise(Signal& signal, uint64_t value) noexcept {
  signal.value.store(value, std::memory_order_seq_cst);
  if (signal.sleepers.load(std::memory_order_seq_cst) != 0) futex_wake(bell(signal), kWakeAll);
}

Status Fabric::wait(Signal& signal, uint64_t value, Rank peer, TimeLimit& limit) {
  if (signal.value.load(std::memory_order_acquire) >= value || spin(signal, value)) return {};
  return sleep(signal, value, peer, limit.deadline());
}

// Whether the signal came. The first polls do without a look at the clock, for as long as a cache line usually takes.
bool Fabric::spin(const Signal& signal, uint64_t value) const noexcept {
  if (oversubscribed_) return give_way(signal, value);
  auto spin_end = Clock::time_point::max();
  do {
    for (int poll = 0; poll < kPollsPerLook; ++poll) {
      if (signal.value.load(std::memory_order_acquire) >= value) return true;
      pause();
    }
    if (own().abort.state.load(std::memory_order_acquire) == 2) return false;
    if (spin_end == Clock::time_point::max()) spin_end = Clock::now() + spin_;
  } while (Clock::now() < spin_end);
  return false;
}

// The same where ranks outnumber cores, and the peer may need this very core: every rank gets a few turns, each of
// which may be a time slice of some milliseconds where others compute.
bool Fabric::give_way(const Signal& signal, uint64_t value) const noexcept {
  const auto begin = Clock::now();
  for (int turns = 0; own().abort.state.load(std::memory_order_acquire) != 2; ++turns) {
    if (signal.value.load(std::memory_order_acquire) >= value) return true;
    const auto waited = Clock::now() - begin;
    if (waited >= kLongestYield || (turns >= kTurns && waited >= spin_)) return false;
    sched_yield();
  }
  return false;
}

Status Fabric::sleep(Signal& signal, uint64_t value, Rank peer, Deadline deadline) {
  auto next_look = Clock::now() + kSleepSlice;
  for (;;) {
    signal.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const uint64_t seen = signal.value.load(std::memory_order_seq_cst);
    if (seen < value && own().abort.state.load(std::memory_order_seq_cst) != 2) {
      futex_wait(bell(signal), static_cast<uint32_t>(seen), std::min(deadline, next_look));
    }
    signal.sleepers.fetch_sub(1, std::memory_order_relaxed);
    if (signal.value.load(std::memory_order_acquire) >= value) return {};
    if (own().abort.state.load(std::memory_order_acquire) == 2) return check_wait(signal, value, peer, deadline);
    if (const auto now = Clock::now(); now >= next_look || now >= deadline) {
      SHARDCOMM_TRY(check_wait(signal, value, peer, deadline));
      next_look = now + kSleepSlice;
    }
  }
}

// ok: go on waiting, or the signal has come after all.
Status Fabric::check_wait(const Signal& signal, uint64_t value, Rank peer, Deadline deadline) {
  SHARDCOMM_TRY(failure());
  const bool left = block(peer).progress.departed.load(std::memory_order_acquire) != 0;
  if (left && signal.value.load(std::memory_order_acquire) < value) {
    return fail(Code::kPeerLost, fmt::format("rank {} left the communicator; {}", peer, late_text()));
  }
  if (const auto lost = lost_peer(); lost && signal.value.load(std::memory_order_acquire) < value) {
    return fail(Code::kPeerLost, fmt::format("the process of rank {} ended; {}", *lost, late_text()));
  }
  if (Clock::now() >= deadline && signal.value.load(std::memory_order_acquire) < value) {
    return fail(Code::kTimedOut, late_text());
  }
  return {};
}

// A rank that left in good order is missed only by those that wait for it.
std::optional<Rank> Fabric::lost_peer() const {
  for (const Rank r : transport_->ended_peers()) {
    if (block(r).progress.departed.load(std::memory_order_acquire) == 0) return r;
  }
  return std::nullopt;
}

// Says nothing of the operation in flight, which another thread may be running.
Status Fabric::check_peers() noexcept {
  const auto lost = lost_peer();
  return lost ? fail(Code::kPeerLost, fmt::format("the process of rank {} ended", *lost)) : Status();
}

Status Fabric::fail(Code code, std::string text) noexcept {
  Status why(code, fmt::format("rank {}: {}", rank_, text));
  abort(why);
  Status first = told(own().abort);  // another rank's reason may have come first: one story for all
  return first.ok() ? why : first;
}

// Where ranks fail at the same moment, the one whose story is in rank 0's word first is told to all.
void Fabric::abort(const Status& why) noexcept {
  if (!birthplace_.is_here()) return;
  Status story = why;
  if (!tell(blocks_[0]->abort, why)) {
    if (Status first = told(blocks_[0]->abort); !first.ok()) story = std::move(first);
  }
  for (ControlBlock* target : blocks_) (void)tell(target->abort, story);
  ring_all_bells();
}

Status Fabric::failure() const { return story_in(own().abort); }

// Sleepers look at what changed, find nothing or the abort word, and go on accordingly.
void Fabric::ring_all_bells() noexcept {
  const auto ring = [](const Signal& signal) {
    if (signal.sleepers.load(std::memory_order_seq_cst) != 0) futex_wake(bell(signal), kWakeAll);
  };
  for (ControlBlock* block : blocks_) {
    ring(block->messages[0].sequence);
    ring(block->messages[1].sequence);
    ring(block->done);
    ring(block->staged);
    for (int r = 0; r < size_; ++r) ring(consumed_signals(block)[r]);
  }
}

}  // namespace shardcomm
