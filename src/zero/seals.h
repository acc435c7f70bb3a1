// Seals find what must not happen: parameters that change outside an update, which other ranks would never see, or bf16
// values written in place of their masters, which the next publish would overwrite.
//
// A seal is a fingerprint of memory, taken when an update ends and compared at the hooks. A range of up to
// kCompleteBytes is compared whole, a longer one in kSampledLines cache lines, spread evenly from its first to its
// last. So a check costs 1 to 4 us a range (bucket), however large the model is. An optimizer that forgot to publish is
// found at once where it changes nearly every element. One that changes a part of a long range is found when that part
// holds a compared line: rows of an embedding, a few a step, may go unnoticed for many steps, one element for ever.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shardcomm/zero.h"

namespace shardcomm::zero {

inline constexpr size_t kCompleteBytes = size_t{16} << 10;
inline constexpr size_t kSampledLines = 64;  // of 64 bytes

// Hashes all of `bytes`, or a sample of them.
uint64_t seal_of(std::span<const std::byte> bytes) noexcept;

// Thread rule: that of the engine.
class Seals {
 public:
  enum class Writer : uint8_t {
    kUpdate,  // may be written in an update: masters, and f32 values, which are their own masters
    kEngine,  // never written by a user: bf16 values, frozen values
  };

  explicit Seals(size_t unit_count) : units_(unit_count) {}

  // Watches and seals `bytes`, which must stay where they are.
  void watch(UnitId unit, std::span<const std::byte> bytes, Writer writer);
  // Records that the present contents are right.
  void seal(UnitId unit) noexcept;
  // Is everything as it was sealed?
  bool intact(UnitId unit) const noexcept;
  // The same in an update, of what not even an update may write.
  bool intact_in_update(UnitId unit) const noexcept;

 private:
  struct Range {
    std::span<const std::byte> bytes;
    Writer writer;
    uint64_t seal;
  };
  std::vector<std::vector<Range>> units_;
};

}  // namespace shardcomm::zero
