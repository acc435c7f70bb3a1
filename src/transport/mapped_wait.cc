// How a rank waits for its peers' signals, and how it fails: it spins for a bounded time, then sleeps in the kernel on
// the signal itself. Every wait watches the abort word, the peers' processes and its deadline.
//
// A sleeper says in its own block which signal it sleeps on and then looks at the signal; whoever raises a signal
// stores the value and then looks at the sleepers. All four are sequentially consistent, so either the sleeper sees the
// value or the other side sees the sleeper. No rank writes to the block of another, but for the abort word.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "base/futex.h"
#include "base/processor.h"
#include "transport/mapped_control.h"

namespace shardcomm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollsPerLook = 64;                      // signal loads between looks at the clock and the abort word
constexpr std::chrono::milliseconds kSleepSlice{50};   // a sleeper looks at its peers this often
constexpr std::chrono::milliseconds kRecordTime{2};    // to write an abort reason down
constexpr int kTurns = 64;                             // that a rank leaves to others, at least
constexpr std::chrono::milliseconds kLongestYield{1};  // but no longer than this

const std::atomic<uint32_t>* bell(const Signal& signal) noexcept {
  return reinterpret_cast<const std::atomic<uint32_t>*>(&signal.value);  // the low half, see control_block.h
}

// Records the reason unless one is recorded already; returns whether it did.
bool try_record_abort(AbortWord& word, const Status& reason) noexcept {
  uint32_t none = 0;
  if (!word.state.compare_exchange_strong(none, 1, std::memory_order_acq_rel)) return false;
  word.code = static_cast<int32_t>(reason.code());
  const size_t bytes = std::min(reason.message().size(), kAbortTextBytes - 1);
  std::memcpy(word.text, reason.message().data(), bytes);
  word.text[bytes] = '\0';
  word.state.store(2, std::memory_order_seq_cst);
  return true;
}

Status recorded_abort(const AbortWord& word) {
  if (word.state.load(std::memory_order_acquire) != 2) return {};
  return Status(static_cast<Code>(word.code), std::string(word.text, strnlen(word.text, kAbortTextBytes)));
}

// Reads the abort reason, waiting briefly for a half-written one. Ok if its writer died first.
Status read_abort_reason(const AbortWord& word) {
  const auto end = Clock::now() + kRecordTime;
  while (word.state.load(std::memory_order_acquire) == 1 && Clock::now() < end) sched_yield();
  return recorded_abort(word);
}

}  // namespace

uint64_t MappedControl::sleeping_on(const Signal& signal, Rank owner) const noexcept {
  const auto offset = reinterpret_cast<const std::byte*>(&signal) - reinterpret_cast<const std::byte*>(&block(owner));
  return (static_cast<uint64_t>(owner) + 1) << 32 | static_cast<uint64_t>(offset);
}

void MappedControl::raise(Signal& signal, uint64_t value) noexcept {
  signal.value.store(value, std::memory_order_seq_cst);
  const uint64_t asleep = sleeping_on(signal, setup_.rank);
  for (const ControlBlock* peer : blocks_) {
    if (peer->sleeper.signal.load(std::memory_order_seq_cst) != asleep) continue;
    futex_wake(bell(signal), kWakeAll);
    return;
  }
}

Status MappedControl::wait(const Signal& signal, uint64_t value, Rank peer, TimeLimit& limit) {
  if (signal.value.load(std::memory_order_acquire) >= value || spin(signal, value, peer)) return {};
  return sleep(signal, value, peer, limit.deadline());
}

// Returns whether the signal came. The first polls do not look at the clock; they last about as long as a cache line
// usually takes.
//
// A rank that spins on the core that its peer needs delays what it waits for by its whole spin, at every signal. It
// happens where other programs keep the cores busy: the kernel wakes a sleeper beside the rank that raised its signal,
// and then both stay there, since no core is idle. So a rank whose peer announced on the same core sleeps at once.
// After such a wait the next one looks before it polls.
bool MappedControl::spin(const Signal& signal, uint64_t value, Rank peer) noexcept {
  if (setup_.oversubscribed) return give_way(signal, value);
  if (slept_for_core_) slept_for_core_ = shares_core_with(peer);
  if (slept_for_core_) return false;
  auto spin_end = Clock::time_point::max();
  do {
    for (int poll = 0; poll < kPollsPerLook; ++poll) {
      if (signal.value.load(std::memory_order_acquire) >= value) return true;
      pause();
    }
    if (own().abort.state.load(std::memory_order_acquire) == 2) return false;
    slept_for_core_ = shares_core_with(peer);
    if (slept_for_core_) return false;
    if (spin_end == Clock::time_point::max()) spin_end = Clock::now() + setup_.spin;
  } while (Clock::now() < spin_end);
  return false;
}

// The peer's core is where it announced last; it may have moved since, and then this rank sleeps without need.
bool MappedControl::shares_core_with(Rank peer) const noexcept {
  const uint32_t core = block(peer).progress.core.load(std::memory_order_relaxed);
  return core != 0 && core == core_of_this_thread();
}

// The same where ranks outnumber cores and the peer may need this very core. A turn left to others may be a time slice
// of some milliseconds where they compute.
bool MappedControl::give_way(const Signal& signal, uint64_t value) const noexcept {
  const auto begin = Clock::now();
  for (int turns = 0; own().abort.state.load(std::memory_order_acquire) != 2; ++turns) {
    if (signal.value.load(std::memory_order_acquire) >= value) return true;
    const auto waited = Clock::now() - begin;
    if (waited >= kLongestYield || (turns >= kTurns && waited >= setup_.spin)) return false;
    sched_yield();
  }
  return false;
}

Status MappedControl::sleep(const Signal& signal, uint64_t value, Rank peer, Deadline deadline) {
  std::atomic<uint64_t>& sleeper = own().sleeper.signal;
  auto next_look = Clock::now() + kSleepSlice;
  for (;;) {
    sleeper.store(sleeping_on(signal, peer), std::memory_order_seq_cst);
    const uint64_t seen = signal.value.load(std::memory_order_seq_cst);
    if (seen < value && own().abort.state.load(std::memory_order_seq_cst) != 2) {
      futex_wait(bell(signal), static_cast<uint32_t>(seen), std::min(deadline, next_look));
    }
    sleeper.store(0, std::memory_order_relaxed);
    if (signal.value.load(std::memory_order_acquire) >= value) return {};
    if (own().abort.state.load(std::memory_order_acquire) == 2) return check_wait(signal, value, peer, deadline);
    if (const auto now = Clock::now(); now >= next_look || now >= deadline) {
      SHARDCOMM_TRY(check_wait(signal, value, peer, deadline));
      next_look = now + kSleepSlice;
    }
  }
}

// Ok means: go on waiting, or the signal has come after all.
Status MappedControl::check_wait(const Signal& signal, uint64_t value, Rank peer, Deadline deadline) {
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
std::optional<Rank> MappedControl::lost_peer() const {
  for (const Rank r : setup_.transport.ended_peers()) {
    if (block(r).progress.departed.load(std::memory_order_acquire) == 0) return r;
  }
  return std::nullopt;
}

// Does not describe the operation in flight, which another thread may be running.
Status MappedControl::check_peers() noexcept {
  const auto lost = lost_peer();
  return lost ? fail(Code::kPeerLost, fmt::format("the process of rank {} ended", *lost)) : Status();
}

Status MappedControl::fail(Code code, std::string text) noexcept {
  Status why(code, fmt::format("rank {}: {}", setup_.rank, text));
  abort(why);
  Status first =
      read_abort_reason(own().abort);  // another rank's reason may have come first; all ranks report that one
  return first.ok() ? why : first;
}

// If ranks fail at the same moment, the reason that is first in rank 0's block is recorded in all of them.
void MappedControl::abort(const Status& why) noexcept {
  if (!birthplace_.is_here()) return;
  Status reason = why;
  if (!try_record_abort(blocks_[0]->abort, why)) {
    if (Status first = read_abort_reason(blocks_[0]->abort); !first.ok()) reason = std::move(first);
  }
  for (ControlBlock* target : blocks_) (void)try_record_abort(target->abort, reason);
  wake_all();
}

Status MappedControl::failure() const { return recorded_abort(own().abort); }

// Sleepers look at what changed, find nothing or the abort word, and go on accordingly.
void MappedControl::wake_all() noexcept {
  const auto ring_bytes = static_cast<uint64_t>(bytes_for(setup_.size));
  for (const ControlBlock* sleeper : blocks_) {
    const uint64_t place = sleeper->sleeper.signal.load(std::memory_order_seq_cst);
    const uint64_t owner = (place >> 32) - 1, offset = place & UINT32_MAX;
    if (place == 0 || owner >= blocks_.size() || offset % alignof(Signal) != 0 || offset >= ring_bytes) continue;
    const auto* block = reinterpret_cast<const std::byte*>(blocks_[owner]);
    futex_wake(bell(*reinterpret_cast<const Signal*>(block + offset)), kWakeAll);
  }
}

}  // namespace shardcomm
