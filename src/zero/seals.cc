#include "zero/seals.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/hash.h"

namespace shardcomm::zero {
namespace {

constexpr size_t kLineBytes = 64;

}  // namespace

uint64_t seal_of(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() <= kCompleteBytes) return hash_bytes(bytes.data(), bytes.size());
  std::array<std::byte, kSampledLines * kLineBytes> sample;
  const size_t last = bytes.size() - kLineBytes;
  for (size_t i = 0; i < kSampledLines; ++i) {
    // Each sample is one cache line, as long as the range begins with one; the last line ends with the range.
    const size_t begin = i + 1 == kSampledLines ? last : last / (kSampledLines - 1) * i / kLineBytes * kLineBytes;
    std::memcpy(sample.data() + i * kLineBytes, bytes.data() + begin, kLineBytes);
  }
  return hash_bytes(sample.data(), sample.size());
}

void Seals::watch(UnitId unit, std::span<const std::byte> bytes, Writer writer) {
  if (!bytes.empty()) units_[unit].push_back({bytes, writer, seal_of(bytes)});
}

void Seals::seal(UnitId unit) noexcept {
  for (Range& range : units_[unit]) range.seal = seal_of(range.bytes);
}

bool Seals::intact(UnitId unit) const noexcept {
  const auto& ranges = units_[unit];
  return std::all_of(ranges.begin(), ranges.end(),
                     [](const Range& range) { return range.seal == seal_of(range.bytes); });
}

bool Seals::intact_in_update(UnitId unit) const noexcept {
  const auto& ranges = units_[unit];
  return std::all_of(ranges.begin(), ranges.end(), [](const Range& range) {
    return range.writer == Writer::kUpdate || range.seal == seal_of(range.bytes);
  });
}

}  // namespace shardcomm::zero
