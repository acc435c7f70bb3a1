// Causal self-attention of all heads. The weights of attention are never kept whole: a block of queries at a time, and
// again in the backward pass, from the logarithm of each row's sum. So memory grows with the sequence and not with its
// square.
#pragma once
#include <cstddef>
#include <vector>

namespace shardcomm::trainer {

struct AttentionShape {
  size_t sequences;
  size_t length;  // tokens in each sequence
  size_t heads;
  size_t channels;  // of all heads together
};

class Attention {
 public:
  // Scratch for sequences up to `length`.
  explicit Attention(size_t length);

  // qkv [sequences, length, 3 * channels]: queries, keys, values, each with its heads side by side.
  // out [sequences, length, channels]; log_sums [sequences, heads, length].
  void forward(const AttentionShape& shape, const float* qkv, float* out, float* log_sums);

  struct Backward {
    const float *qkv, *log_sums, *dout;
    float* dqkv;  // overwritten
  };
  void backward(const AttentionShape& shape, const Backward& args);

  size_t scratch_bytes() const { return (weights_.size() + dweights_.size()) * sizeof(float); }

 private:
  struct Head;
  void forward_head(const Head& head, float* out, float* log_sums);
  void backward_head(const Head& head, const Backward& args);

  std::vector<float> weights_;   // [block, length]
  std::vector<float> dweights_;  // [block, length]
};

}  // namespace shardcomm::trainer
