// A hash of words that come one by one: no room is needed for all of them.
#pragma once
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace shardcomm {

class WordHash {
 public:
  void add(uint64_t word) noexcept {
    words_[count_] = word;
    if (++count_ == words_.size()) take();
  }
  uint64_t value() noexcept {
    take();
    return hash_;
  }

 private:
  void take() noexcept {
    hash_ = XXH3_64bits_withSeed(words_.data(), count_ * sizeof(uint64_t), hash_);
    count_ = 0;
  }
  std::array<uint64_t, 64> words_;
  size_t count_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace shardcomm
