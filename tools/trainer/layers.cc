#include "tools/trainer/layers.h"

#include <cmath>
#include <cstring>

#include "tools/trainer/matmul.h"
#include "tools/trainer/vector.h"

namespace shardcomm::trainer {

// ---- Embedding

SHARDCOMM_VECTOR
void embedding_forward(const Embedding& shape, const float* token_table, const float* position_table, float* out) {
  const size_t channels = shape.channels;
  for (size_t row = 0; row < shape.tokens.size(); ++row) {
    const float* token = token_table + static_cast<size_t>(shape.tokens[row]) * channels;
    const float* position = position_table + row % shape.length * channels;
    float* to = out + row * channels;
#pragma omp simd
    for (size_t c = 0; c < channels; ++c) to[c] = token[c] + position[c];
  }
}

SHARDCOMM_VECTOR
void embedding_backward(const Embedding& shape, const float* dout, float* dtoken_table, float* dposition_table) {
  const size_t channels = shape.channels;
  for (size_t row = 0; row < shape.tokens.size(); ++row) {
    const float* from = dout + row * channels;
    float* token = dtoken_table + static_cast<size_t>(shape.tokens[row]) * channels;
    float* position = dposition_table + row % shape.length * channels;
#pragma omp simd
    for (size_t c = 0; c < channels; ++c) token[c] += from[c];
#pragma omp simd
    for (size_t c = 0; c < channels; ++c) position[c] += from[c];
  }
}

// ---- Layer normalization

SHARDCOMM_VECTOR
void layer_norm_forward(const LayerNormForward& args) {
  const size_t channels = args.channels;
  const float share = 1.0f / static_cast<float>(channels);
  for (size_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * channels;
    float* y = args.y + row * channels;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t c = 0; c < channels; ++c) sum += x[c];
    const float mean = sum * share;
    float squares = 0;  // of the deviations: a second pass, where E[x^2] - mean^2 would cancel
#pragma omp simd reduction(+ : squares)
    for (size_t c = 0; c < channels; ++c) squares += (x[c] - mean) * (x[c] - mean);
    const float rstd = 1.0f / std::sqrt(squares * share + kLayerNormEpsilon);
#pragma omp simd
    for (size_t c = 0; c < channels; ++c) y[c] = (x[c] - mean) * rstd * args.weight[c] + args.bias[c];
    args.mean[row] = mean;
    args.rstd[row] = rstd;
  }
}

// With n = (x - mean) rstd and g = dy weight:  dx = rstd (g - average(g) - n average(g n)).
SHARDCOMM_VECTOR
void layer_norm_backward(const LayerNormBackward& args) {
  const size_t channels = args.channels;
  const float share = 1.0f / static_cast<float>(channels);
  for (size_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * channels;
    const float* dy = args.dy + row * channels;
    float* dx = args.dx + row * channels;
    const float mean = args.mean[row];
    const float rstd = args.rstd[row];
    float sum_g = 0;
    float sum_gn = 0;
#pragma omp simd reduction(+ : sum_g, sum_gn)
    for (size_t c = 0; c < channels; ++c) {
      const float n = (x[c] - mean) * rstd;
      const float g = dy[c] * args.weight[c];
      sum_g += g;
      sum_gn += g * n;
      args.dbias[c] += dy[c];
      args.dweight[c] += dy[c] * n;
    }
    const float average_g = sum_g * share;
    const float average_gn = sum_gn * share;
#pragma omp simd
    for (size_t c = 0; c < channels; ++c) {
      const float n = (x[c] - mean) * rstd;
      dx[c] += rstd * (dy[c] * args.weight[c] - average_g - n * average_gn);
    }
  }
}

// ---- Linear

SHARDCOMM_VECTOR
static void fill_rows(const LinearForward& args) {
  for (size_t row = 0; row < args.rows; ++row) {
    float* y = args.y + row * args.out;
    if (args.residual == nullptr) {
      std::memcpy(y, args.bias, args.out * sizeof(float));
      continue;
    }
    const float* residual = args.residual + row * args.out;
#pragma omp simd
    for (size_t c = 0; c < args.out; ++c) y[c] = residual[c] + args.bias[c];
  }
}

SHARDCOMM_VECTOR
static void add_column_sums(const LinearBackward& args) {
  for (size_t row = 0; row < args.rows; ++row) {
    const float* dy = args.dy + row * args.out;
#pragma omp simd
    for (size_t c = 0; c < args.out; ++c) args.dbias[c] += dy[c];
  }
}

void linear_forward(const LinearForward& args) {
  fill_rows(args);
  multiply(view(args.x, args.rows, args.in), view(args.weight, args.in, args.out), matrix(args.y, args.rows, args.out),
           {.previous = 1});
}

void linear_backward(const LinearBackward& args) {
  const MatrixView dy = view(args.dy, args.rows, args.out);
  multiply(dy, view(args.weight, args.in, args.out).t(), matrix(args.dx, args.rows, args.in));
  multiply(view(args.x, args.rows, args.in).t(), dy, matrix(args.dweight, args.in, args.out), {.previous = 1});
  add_column_sums(args);
}

// ---- GELU

static constexpr float kGeluScale = 0.7978845608f;  // sqrt(2 / pi)
static constexpr float kGeluCubic = 0.044715f;

SHARDCOMM_VECTOR
void gelu_forward(std::span<const float> x, float* y) {
  const float* from = x.data();
  const size_t count = x.size();
#pragma omp simd
  for (size_t i = 0; i < count; ++i) {
    const float v = from[i];
    const float t = fast_tanh(kGeluScale * (v + kGeluCubic * v * v * v));
    y[i] = 0.5f * v * (1.0f + t);
  }
}

SHARDCOMM_VECTOR
void gelu_backward(std::span<const float> x, float* dy) {
  const float* from = x.data();
  const size_t count = x.size();
#pragma omp simd
  for (size_t i = 0; i < count; ++i) {
    const float v = from[i];
    const float t = fast_tanh(kGeluScale * (v + kGeluCubic * v * v * v));
    const float slope = kGeluScale * (1.0f + 3.0f * kGeluCubic * v * v);
    dy[i] *= 0.5f * (1.0f + t) + 0.5f * v * (1.0f - t * t) * slope;
  }
}

// ---- Softmax cross-entropy

SHARDCOMM_VECTOR
static float cross_entropy_row(size_t vocab, size_t target, float* logits) {
  float largest = logits[0];
#pragma omp simd reduction(max : largest)
  for (size_t v = 0; v < vocab; ++v) largest = logits[v] > largest ? logits[v] : largest;
  const float target_logit = logits[target] - largest;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (size_t v = 0; v < vocab; ++v) {
    logits[v] = fast_exp(logits[v] - largest);
    sum += logits[v];
  }
  const float share = 1.0f / sum;
#pragma omp simd
  for (size_t v = 0; v < vocab; ++v) logits[v] *= share;
  logits[target] -= 1.0f;
  return std::log(sum) - target_logit;
}

double cross_entropy(size_t vocab, std::span<const int32_t> targets, float* logits) {
  double loss = 0;
  for (size_t row = 0; row < targets.size(); ++row) {
    float* of_row = logits + row * vocab;
    if (targets[row] < 0) {
      std::memset(of_row, 0, vocab * sizeof(float));
    } else {
      loss += static_cast<double>(cross_entropy_row(vocab, static_cast<size_t>(targets[row]), of_row));
    }
  }
  return loss;
}

}  // namespace shardcomm::trainer
