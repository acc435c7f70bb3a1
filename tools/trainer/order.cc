#include "tools/trainer/order.h"

#include <algorithm>
#include <bit>

#include "tools/trainer/init.h"

namespace shardcomm::trainer {

static constexpr int kRounds = 6;

Permutation::Permutation(uint64_t count, uint64_t key)
    : count_(count), key_(key), half_bits_(std::max(1u, (static_cast<unsigned>(std::bit_width(count - 1)) + 1) / 2)) {}

uint64_t Permutation::encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t mixed = mix_bits(key_ ^ mix_bits(round << half_bits_ | right)) & mask;
    const uint64_t next = left ^ mixed;
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

uint64_t Permutation::operator()(uint64_t index) const {
  do {
    index = encrypt(index);
  } while (index >= count_);
  return index;
}

uint64_t sample_at(uint64_t position, uint64_t samples, uint64_t seed) {
  const uint64_t epoch = position / samples;
  return Permutation(samples, mix_bits(stream_key(seed, "data order") ^ mix_bits(epoch)))(position % samples);
}

Slice rank_slice(uint64_t consumed, size_t global_batch, Share share) {
  const auto rank = static_cast<size_t>(share.rank);
  const auto size = static_cast<size_t>(share.size);
  const size_t whole = global_batch / size;
  const size_t rest = global_batch % size;  // the first `rest` ranks take one more
  const size_t before = rank * whole + std::min(rank, rest);
  return {consumed + before, whole + (rank < rest ? 1 : 0)};
}

}  // namespace shardcomm::trainer
