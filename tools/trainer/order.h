// Which sample is trained on when: one permutation of all samples per epoch, from the seed, and one global position
// that says how far training has come. Nothing here depends on the number of ranks.
#pragma once
#include <cstddef>
#include <cstdint>

namespace shardcomm::trainer {

// A permutation of 0 .. count - 1 that is computed, not stored: a Feistel network over the next power of four, repeated
// until the result is below count (cycle walking; Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
class Permutation {
 public:
  Permutation(uint64_t count, uint64_t key);  // count > 0
  uint64_t operator()(uint64_t index) const;  // index < count
  uint64_t count() const { return count_; }

 private:
  uint64_t encrypt(uint64_t value) const;

  uint64_t count_;
  uint64_t key_;
  unsigned half_bits_;
};

// The sample at a global position. Positions run on over the epochs: position / samples is the epoch.
uint64_t sample_at(uint64_t position, uint64_t samples, uint64_t seed);

struct Slice {
  uint64_t first;
  size_t count;
};

// The consecutive positions that one of `size` ranks takes of the next `global_batch`, from `consumed` on. The slices
// of all ranks together are the batch, in rank order; their counts differ by at most one, and may be zero.
struct Share {
  int rank;
  int size;
};
Slice rank_slice(uint64_t consumed, size_t global_batch, Share share);

}  // namespace shardcomm::trainer
