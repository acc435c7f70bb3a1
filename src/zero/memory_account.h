// Counts the bytes of one engine where they are allocated and freed. One thread: the engine's.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>

#include "shardcomm/zero.h"

namespace shardcomm::zero {

enum class Purpose : uint8_t { kParameters, kGradients, kOptimizer, kGathered, kUnreduced };

class MemoryAccount {
 public:
  void add(Purpose purpose, size_t bytes) noexcept {
    bytes_[index(purpose)] += bytes;
    live_ += bytes;
    peak_ = std::max(peak_, live_);
  }
  void remove(Purpose purpose, size_t bytes) noexcept {
    bytes_[index(purpose)] -= bytes;
    live_ -= bytes;
  }
  void reset_peak() noexcept { peak_ = live_; }

  MemoryReport report() const noexcept {
    return {bytes_[index(Purpose::kParameters)],
            bytes_[index(Purpose::kGradients)],
            bytes_[index(Purpose::kOptimizer)],
            bytes_[index(Purpose::kGathered)],
            bytes_[index(Purpose::kUnreduced)],
            live_,
            peak_};
  }

 private:
  static constexpr size_t index(Purpose purpose) noexcept { return static_cast<size_t>(purpose); }
  std::array<size_t, 5> bytes_{};
  size_t live_ = 0;
  size_t peak_ = 0;
};

}  // namespace shardcomm::zero
