// Reading records while they are written.
#include "flight/layout.h"

#include <algorithm>
#include <cstring>

namespace shardcomm {
namespace {

constexpr int kLooks = 64;
constexpr auto kAcquire = std::memory_order_acquire;

bool read_call(const FlightCallRecord& record, uint64_t epoch, FlightEntry& entry) noexcept {
  if (record.version.load(kAcquire) != 2 * epoch) return false;
  const uint64_t call = record.call.load(kAcquire);
  const uint64_t count = record.count.load(kAcquire), enqueued = record.enqueued.load(kAcquire);
  uint64_t label[kFlightLabelWords];
  for (size_t i = 0; i < kFlightLabelWords; ++i) label[i] = record.label[i].load(kAcquire);
  if (record.version.load(std::memory_order_relaxed) != 2 * epoch) return false;
  const auto collective = static_cast<Collective>(static_cast<uint8_t>(call));
  entry.call = {.collective = collective,
                .dtype = static_cast<DType>(static_cast<uint8_t>(call >> 8)),
                .op = static_cast<ReduceOp>(static_cast<uint8_t>(call >> 16)),
                .kind = is_valid(collective) ? CallKind::kCollective : CallKind::kAgreement,
                .root_or_items = static_cast<int32_t>(call >> 32),
                .count = count};
  entry.enqueued = enqueued;
  // The words beyond the label are of older ones.
  const size_t bytes = std::min<size_t>(static_cast<uint8_t>(call >> 24), kLabelBytes - 1);
  std::memcpy(entry.label, label, sizeof label);
  std::memset(entry.label + bytes, 0, kLabelBytes - bytes);
  return true;
}

// Also true where the operation has not run: the slot may still be that of one a whole ring earlier.
bool read_run(const FlightRunRecord& record, uint64_t epoch, FlightEntry& entry) noexcept {
  entry.started = entry.finished = 0;
  entry.outcome = 0;
  const uint64_t version = record.version.load(kAcquire);
  if (version + 1 < 2 * epoch) return true;
  if (version != 2 * epoch) return false;
  const uint64_t started = record.started.load(kAcquire), finished = record.finished.load(kAcquire);
  const auto outcome = static_cast<int32_t>(record.outcome.load(kAcquire));
  if (record.version.load(std::memory_order_relaxed) != version) return false;
  entry.started = started;
  entry.finished = finished;
  entry.outcome = finished != 0 ? outcome : 0;
  return true;
}

}  // namespace

bool read_entry(const FlightSegment& segment, uint64_t epoch, FlightEntry& entry) noexcept {
  const size_t slot = epoch % kFlightCapacity;
  for (int look = 0; look < kLooks; ++look) {
    if (segment.calls[slot].version.load(kAcquire) > 2 * epoch) return false;  // overwritten
    entry.epoch = epoch;
    if (read_call(segment.calls[slot], epoch, entry) && read_run(segment.runs[slot], epoch, entry)) return true;
  }
  return false;
}

bool read_message(const FlightSegment& segment, uint64_t number, FlightMessageEntry& entry) noexcept {
  const FlightMessageRecord& record = segment.messages[number % kFlightCapacity];
  for (int look = 0; look < kLooks; ++look) {
    const uint64_t version = record.version.load(kAcquire);
    if (version > 2 * number) return false;  // overwritten
    if (version != 2 * number) continue;
    const uint64_t call = record.call.load(kAcquire);
    entry = {.number = number,
             .call = {.is_send = (call & 1) != 0,
                      .dtype = static_cast<DType>(static_cast<uint8_t>(call >> 8)),
                      .peer = static_cast<Rank>(record.peer.load(kAcquire)),
                      .tag = static_cast<int32_t>(call >> 32),
                      .count = record.count.load(kAcquire)},
             .enqueued = record.enqueued.load(kAcquire),
             .started = record.started.load(kAcquire),
             .finished = record.finished.load(kAcquire),
             .outcome = 0,
             .label = {}};
    if (entry.finished != 0) entry.outcome = static_cast<int32_t>(record.outcome.load(kAcquire));
    uint64_t label[kFlightLabelWords];
    for (size_t i = 0; i < kFlightLabelWords; ++i) label[i] = record.label[i].load(kAcquire);
    std::memcpy(entry.label, label, std::min<size_t>(static_cast<uint8_t>(call >> 24), kLabelBytes - 1));
    if (record.version.load(std::memory_order_relaxed) == version) return true;
  }
  return false;
}

uint64_t newest_message(const FlightSegment& segment) noexcept {
  uint64_t newest = 0;
  for (const FlightMessageRecord& record : segment.messages)
    newest = std::max(newest, record.version.load(kAcquire) / 2);
  return newest;
}

uint64_t newest_epoch(const FlightSegment& segment) noexcept {
  uint64_t newest = 0;
  for (const FlightCallRecord& record : segment.calls) newest = std::max(newest, record.version.load(kAcquire) / 2);
  return newest;
}

std::string_view fixed_text(const char* text, size_t capacity) noexcept { return {text, strnlen(text, capacity)}; }

}  // namespace shardcomm
