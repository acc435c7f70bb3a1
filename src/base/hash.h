// The one hash function of the library, XXH3 (64 bits). Hashes are compared between ranks of one build and within one
// process; none is stored in a file under a promise.
#pragma once
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shardcomm {

inline uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed = 0) noexcept {
  return XXH3_64bits_withSeed(data, bytes, seed);
}
inline uint64_t hash_text(std::string_view text, uint64_t seed = 0) noexcept {
  return hash_bytes(text.data(), text.size(), seed);
}

// A hash of words that come one by one: they need not be kept.
class WordHash {
 public:
  void add(uint64_t word) noexcept {
    words_[count_] = word;
    if (++count_ == words_.size()) absorb();
  }
  // Texts go in with their lengths, so that neighbours cannot run together.
  void add(std::string_view text) noexcept {
    add(text.size());
    add(hash_text(text));
  }
  uint64_t value() noexcept {
    absorb();
    return hash_;
  }

 private:
  void absorb() noexcept {
    hash_ = hash_bytes(words_.data(), count_ * sizeof(uint64_t), hash_);
    count_ = 0;
  }
  std::array<uint64_t, 64> words_;
  size_t count_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace shardcomm
