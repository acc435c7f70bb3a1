#include "tools/trainer/attention.h"

#include <algorithm>
#include <cmath>

#include "tools/trainer/matmul.h"
#include "tools/trainer/vector.h"

namespace shardcomm::trainer {
namespace {

// Queries handled together. Small, because a block computes its scores for every key up to its last query and throws
// half of the last square away; not smaller, because the matrix product needs some rows to be fast.
constexpr size_t kBlock = 32;

// A square of scores [rows, keys] of the queries first .. first + rows; query i sees the keys 0 .. first + i.
struct Scores {
  float* data;
  size_t rows;
  size_t keys;
  size_t first;
};

// Rows become softmax weights, zero behind the diagonal.
SHARDCOMM_VECTOR
void softmax(const Scores& scores, float* log_sums) {
  for (size_t i = 0; i < scores.rows; ++i) {
    float* row = scores.data + i * scores.keys;
    const size_t seen = scores.first + i + 1;
    float largest = row[0];
#pragma omp simd reduction(max : largest)
    for (size_t j = 0; j < seen; ++j) largest = row[j] > largest ? row[j] : largest;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t j = 0; j < seen; ++j) {
      row[j] = fast_exp(row[j] - largest);
      sum += row[j];
    }
    const float share = 1.0f / sum;
#pragma omp simd
    for (size_t j = 0; j < seen; ++j) row[j] *= share;
    std::fill(row + seen, row + scores.keys, 0.0f);
    log_sums[i] = largest + std::log(sum);
  }
}

// The same weights again, from the scores and what the forward pass kept.
SHARDCOMM_VECTOR
void softmax_again(const Scores& scores, const float* log_sums) {
  for (size_t i = 0; i < scores.rows; ++i) {
    float* row = scores.data + i * scores.keys;
    const size_t seen = scores.first + i + 1;
    const float log_sum = log_sums[i];
#pragma omp simd
    for (size_t j = 0; j < seen; ++j) row[j] = fast_exp(row[j] - log_sum);
    std::fill(row + seen, row + scores.keys, 0.0f);
  }
}

// dweights [rows, keys] become the gradient of the scores: w (dw - sum of w dw over the row).
SHARDCOMM_VECTOR
void softmax_backward(const Scores& weights, float* dweights) {
  for (size_t i = 0; i < weights.rows; ++i) {
    const float* w = weights.data + i * weights.keys;
    float* dw = dweights + i * weights.keys;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t j = 0; j < weights.keys; ++j) sum += w[j] * dw[j];
#pragma omp simd
    for (size_t j = 0; j < weights.keys; ++j) dw[j] = w[j] * (dw[j] - sum);
  }
}

}  // namespace

// Where one head of one sequence lies in qkv (and in dqkv, which has the same layout), and its part of the output.
struct Attention::Head {
  const float* qkv;
  size_t length;
  size_t channels;    // of all heads
  size_t width;       // of this head
  size_t qkv_offset;  // of the first query's first element
  size_t out_offset;
  size_t log_sum_offset;
  float scale;  // 1 / sqrt(width)

  size_t stride() const { return 3 * channels; }
  MatrixView queries(size_t first, size_t rows) const {
    return {qkv + qkv_offset + first * stride(), rows, width, stride()};
  }
  MatrixView keys(size_t rows) const { return {qkv + qkv_offset + channels, rows, width, stride()}; }
  MatrixView values(size_t rows) const { return {qkv + qkv_offset + 2 * channels, rows, width, stride()}; }
};

Attention::Attention(size_t length)
    : weights_(std::min(kBlock, length) * length), dweights_(std::min(kBlock, length) * length) {}

void Attention::forward_head(const Head& head, float* out, float* log_sums) {
  for (size_t first = 0; first < head.length; first += kBlock) {
    const size_t rows = std::min(kBlock, head.length - first);
    const size_t keys = first + rows;
    const Matrix weights = matrix(weights_.data(), rows, keys);
    multiply(head.queries(first, rows), head.keys(keys).t(), weights, {.product = head.scale});
    softmax({weights.data, rows, keys, first}, log_sums + head.log_sum_offset + first);
    multiply(weights, head.values(keys),
             {out + head.out_offset + first * head.channels, rows, head.width, head.channels});
  }
}

// Blocks from the last to the first: the last one sees every key, so it writes the gradients of keys and values and the
// others add to them; nothing has to be cleared before.
void Attention::backward_head(const Head& head, const Backward& args) {
  const size_t blocks = (head.length + kBlock - 1) / kBlock;
  float* dq = args.dqkv + head.qkv_offset;
  for (size_t block = blocks; block-- > 0;) {
    const size_t first = block * kBlock;
    const size_t rows = std::min(kBlock, head.length - first);
    const size_t keys = first + rows;
    const float previous = block + 1 == blocks ? 0.0f : 1.0f;
    const Matrix weights = matrix(weights_.data(), rows, keys);
    const Matrix dweights = matrix(dweights_.data(), rows, keys);
    const MatrixView dout{args.dout + head.out_offset + first * head.channels, rows, head.width, head.channels};
    const MatrixView queries = head.queries(first, rows);
    const auto gradient = [&](float* at, size_t n) { return Matrix{at, n, head.width, head.stride()}; };

    multiply(queries, head.keys(keys).t(), weights, {.product = head.scale});
    softmax_again({weights.data, rows, keys, first}, args.log_sums + head.log_sum_offset + first);
    multiply(MatrixView(weights).t(), dout, gradient(dq + 2 * head.channels, keys), {.previous = previous});
    multiply(dout, head.values(keys).t(), dweights);
    softmax_backward({weights.data, rows, keys, first}, dweights.data);
    multiply(dweights, head.keys(keys), gradient(dq + first * head.stride(), rows), {.product = head.scale});
    multiply(MatrixView(dweights).t(), queries, gradient(dq + head.channels, keys), {head.scale, previous});
  }
}

template <class Visit>
static void for_each_head(const AttentionShape& shape, Visit visit) {
  const size_t width = shape.channels / shape.heads;
  for (size_t s = 0; s < shape.sequences; ++s) {
    for (size_t h = 0; h < shape.heads; ++h) visit(s, h, width);
  }
}

void Attention::forward(const AttentionShape& shape, const float* qkv, float* out, float* log_sums) {
  for_each_head(shape, [&](size_t s, size_t h, size_t width) {
    const size_t row = s * shape.length;
    forward_head({.qkv = qkv,
                  .length = shape.length,
                  .channels = shape.channels,
                  .width = width,
                  .qkv_offset = row * 3 * shape.channels + h * width,
                  .out_offset = row * shape.channels + h * width,
                  .log_sum_offset = (s * shape.heads + h) * shape.length,
                  .scale = 1.0f / std::sqrt(static_cast<float>(width))},
                 out, log_sums);
  });
}

void Attention::backward(const AttentionShape& shape, const Backward& args) {
  for_each_head(shape, [&](size_t s, size_t h, size_t width) {
    const size_t row = s * shape.length;
    backward_head({.qkv = args.qkv,
                   .length = shape.length,
                   .channels = shape.channels,
                   .width = width,
                   .qkv_offset = row * 3 * shape.channels + h * width,
                   .out_offset = row * shape.channels + h * width,
                   .log_sum_offset = (s * shape.heads + h) * shape.length,
                   .scale = 1.0f / std::sqrt(static_cast<float>(width))},
                  args);
  });
}

}  // namespace shardcomm::trainer
