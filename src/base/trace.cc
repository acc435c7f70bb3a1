// The event ring. A slot is claimed by compare-and-swap before it is written or read, so no thread ever waits for
// another: who finds its slot busy (a writer a whole ring behind, or the reader) gives up that event.
#include "shardcomm/trace.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

namespace shardcomm {
namespace {

constexpr size_t kNameBytes = 40;

struct Slot {
  enum State : uint32_t { kEmpty, kBusy, kFull };
  std::atomic<uint32_t> state{kEmpty};
  uint8_t name_bytes;
  Lane lane;
  Rank rank;
  int64_t begin_ns;
  int64_t end_ns;
  uint64_t bytes;
  char name[kNameBytes];

  // True if the slot was claimed; `previous` is then its state before.
  bool claim(uint32_t& previous) noexcept {
    previous = state.load(std::memory_order_relaxed);
    return previous != kBusy && state.compare_exchange_strong(previous, kBusy, std::memory_order_acquire);
  }
  void write(const TraceRecord& record) noexcept {
    name_bytes = static_cast<uint8_t>(std::min(record.name.size(), kNameBytes));
    std::copy_n(record.name.data(), name_bytes, name);
    lane = record.lane;
    rank = record.rank;
    begin_ns = record.begin_ns;
    end_ns = record.end_ns;
    bytes = record.bytes;
  }
  TraceEvent read() const {
    return {.name = std::string(name, name_bytes),
            .lane = lane,
            .rank = rank,
            .begin_ns = begin_ns,
            .end_ns = end_ns,
            .bytes = bytes};
  }
};

struct Ring {
  explicit Ring(size_t count) : capacity(count), slots(new Slot[count]) {}
  const size_t capacity;
  const std::unique_ptr<Slot[]> slots;
  std::atomic<uint64_t> next{0};
  std::atomic<uint64_t> lost{0};
};

// A thread may still be writing into a ring that has been replaced, so rings live on and are used again for the same
// capacity.
struct Rings {
  std::mutex mutex;  // start, stop and take; never record
  std::vector<std::unique_ptr<Ring>> all;
  Ring* latest = nullptr;
};

Rings& rings() {
  static Rings instance;
  return instance;
}

std::atomic<Ring*> recording{nullptr};

void drain(Ring& ring, std::vector<TraceEvent>* events) {
  for (size_t i = 0; i < ring.capacity; ++i) {
    Slot& slot = ring.slots[i];
    uint32_t expected = Slot::kFull;
    if (!slot.state.compare_exchange_strong(expected, Slot::kBusy, std::memory_order_acquire)) continue;
    if (events != nullptr) events->push_back(slot.read());
    slot.state.store(Slot::kEmpty, std::memory_order_release);
  }
}

Ring* ring_of(Rings& held, size_t capacity) {
  for (const auto& ring : held.all) {
    if (ring->capacity == capacity) return ring.get();
  }
  held.all.push_back(std::make_unique<Ring>(capacity));
  return held.all.back().get();
}

}  // namespace

std::string_view name(Lane lane) noexcept {
  constexpr std::array<std::string_view, kLaneCount> kNames = {"gather", "compute", "reduce", "free", "other"};
  const auto index = static_cast<size_t>(lane);
  return index < kNames.size() ? kNames[index] : "other";
}

Status trace_start(size_t capacity) {
  if (capacity == 0 || capacity > kMostTraceEvents) {
    return Status(Code::kInvalidArgument, "a trace of " + std::to_string(capacity) + " events; it may have from 1 to " +
                                              std::to_string(kMostTraceEvents));
  }
  Rings& held = rings();
  const std::lock_guard lock(held.mutex);
  const Ring* active = recording.load();
  if (active != nullptr && active->capacity >= capacity) return {};
  try {
    held.latest = ring_of(held, capacity);
  } catch (const std::bad_alloc&) {
    return Status(Code::kOutOfMemory, "a trace of " + std::to_string(capacity) + " events");
  }
  drain(*held.latest, nullptr);
  held.latest->next = 0;
  held.latest->lost = 0;
  recording.store(held.latest, std::memory_order_release);
  return {};
}

void trace_stop() noexcept { recording.store(nullptr, std::memory_order_release); }

bool trace_enabled() noexcept { return recording.load(std::memory_order_relaxed) != nullptr; }

int64_t trace_now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void trace_record(const TraceRecord& record) noexcept {
  Ring* ring = recording.load(std::memory_order_acquire);
  if (ring == nullptr) return;
  Slot& slot = ring->slots[ring->next.fetch_add(1, std::memory_order_relaxed) % ring->capacity];
  uint32_t previous = Slot::kEmpty;
  const bool claimed = slot.claim(previous);
  if (claimed) {
    slot.write(record);
    slot.state.store(Slot::kFull, std::memory_order_release);
  }
  if (!claimed || previous == Slot::kFull) ring->lost.fetch_add(1, std::memory_order_relaxed);
}

std::vector<TraceEvent> trace_take() {
  Rings& held = rings();
  std::vector<TraceEvent> events;
  {
    const std::lock_guard lock(held.mutex);
    if (held.latest != nullptr) drain(*held.latest, &events);
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const TraceEvent& a, const TraceEvent& b) { return a.begin_ns < b.begin_ns; });
  return events;
}

uint64_t trace_lost() noexcept {
  Rings& held = rings();
  const std::lock_guard lock(held.mutex);
  return held.latest != nullptr ? held.latest->lost.load() : 0;
}

}  // namespace shardcomm
