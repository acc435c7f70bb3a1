// The layers of a transformer, forward and backward, as functions over row-major f32 memory. "rows" are tokens.
// Gradients of parameters are always added to (+=): a parameter may be used twice, and micro-batches accumulate.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace shardcomm::trainer {

// ---- Embedding: out[i] = tokens_table[tokens[i]] + positions_table[i mod length]
struct Embedding {
  size_t channels;
  size_t length;                    // of one sequence; tokens hold whole sequences one after another
  std::span<const int32_t> tokens;  // [rows], each within the table
};
void embedding_forward(const Embedding& shape, const float* token_table, const float* position_table, float* out);
void embedding_backward(const Embedding& shape, const float* dout, float* dtoken_table, float* dposition_table);

// ---- Layer normalization: y = (x - mean) * rstd * weight + bias, mean and variance over the channels of one row
struct LayerNormForward {
  size_t rows, channels;
  const float *x, *weight, *bias;
  float *y, *mean, *rstd;  // [rows, channels], [rows], [rows]
};
struct LayerNormBackward {
  size_t rows, channels;
  const float *x, *weight, *mean, *rstd, *dy;
  float *dx, *dweight, *dbias;  // dx is added to: it is the gradient of the residual stream
};
inline constexpr float kLayerNormEpsilon = 1e-5f;
void layer_norm_forward(const LayerNormForward& args);
void layer_norm_backward(const LayerNormBackward& args);

// ---- Linear: y = x weight + bias (+ residual), weight [in, out] as GPT-2's Conv1D keeps it
struct LinearForward {
  size_t rows, in, out;
  const float *x, *weight, *bias;
  const float* residual = nullptr;  // [rows, out] or null
  float* y;
};
struct LinearBackward {
  size_t rows, in, out;
  const float *x, *weight, *dy;
  float* dx;  // overwritten
  float *dweight, *dbias;
};
void linear_forward(const LinearForward& args);
void linear_backward(const LinearBackward& args);

// ---- GELU in GPT-2's tanh form: y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
void gelu_forward(std::span<const float> x, float* y);
void gelu_backward(std::span<const float> x, float* dy);  // dy becomes dx

// ---- Softmax cross-entropy
// Each row of logits [rows, vocab] becomes the gradient of its loss by the logits: softmax - onehot(target), or zeros
// where target < 0 (ignored). Returns the sum of the losses of the rows that count.
double cross_entropy(size_t vocab, std::span<const int32_t> targets, float* logits);

}  // namespace shardcomm::trainer
