#include "tools/trainer/gpt2.h"

#include <algorithm>
#include <memory>

#include "tools/trainer/layers.h"
#include "tools/trainer/matmul.h"

namespace shardcomm::trainer {

using namespace gpt2;  // positions of parameters

static constexpr size_t kCacheLine = 64;  // bytes; vector loads that cross one are slower

Gpt2::Gpt2(const ModelConfig& config, const ModelOptions& options)
    : config_(config),
      options_(options),
      units_(gpt2_units(config)),
      memory_(at_.lay_out(config, options, nullptr) + kCacheLine / sizeof(float)),
      attention_(config.seq) {
  void* base = memory_.data();
  size_t space = memory_.size() * sizeof(float);
  at_.lay_out(config, options, static_cast<float*>(std::align(kCacheLine, kCacheLine, base, space)));
}

size_t Gpt2::activation_bytes() const { return memory_.size() * sizeof(float) + attention_.scratch_bytes(); }

AttentionShape Gpt2::attention_shape() const {
  return {batch_.sequences, batch_.length, config_.heads, config_.channels};
}

Status Gpt2::begin(const Batch& batch) {
  SHARDCOMM_TRY(check_batch(config_, options_, batch));
  batch_ = batch;
  rows_ = batch.tokens.size();
  loss_ = {};
  return {};
}

Status Gpt2::forward(size_t unit, Parameters p) {
  SHARDCOMM_TRY(check_parameters(units_[unit], p, false));
  if (unit == 0) {
    forward_embedding(p);
  } else if (unit <= config_.layers) {
    forward_block(unit - 1, p);
  } else {
    forward_head(p);
  }
  return {};
}

Status Gpt2::backward(size_t unit, Parameters p) {
  SHARDCOMM_TRY(check_parameters(units_[unit], p, true));
  if (batch_.targets.size() != rows_) return Status(Code::kFailedPrecondition, "backward of a batch without targets");
  if (unit == 0) {
    backward_embedding(p);
  } else if (unit <= config_.layers) {
    backward_block(unit - 1, p);
  } else {
    backward_head(p);
  }
  return {};
}

// ---- Forward

void Gpt2::forward_embedding(Parameters p) {
  embedding_forward({config_.channels, batch_.length, batch_.tokens}, p[kTokenTable].value, p[kPositionTable].value,
                    at_.stream[0]);
}

// stream' = stream + attention(norm(stream));  stream'' = stream' + mlp(norm(stream'))
void Gpt2::forward_block(size_t layer, Parameters p) {
  const size_t c = config_.channels;
  const Block& b = block(layer);
  const float* input = at_.stream[layer];
  layer_norm_forward({.rows = rows_,
                      .channels = c,
                      .x = input,
                      .weight = p[kNorm1W].value,
                      .bias = p[kNorm1B].value,
                      .y = b.norm1,
                      .mean = b.mean1,
                      .rstd = b.rstd1});
  linear_forward({.rows = rows_,
                  .in = c,
                  .out = 3 * c,
                  .x = b.norm1,
                  .weight = p[kAttnW].value,
                  .bias = p[kAttnB].value,
                  .y = b.qkv});
  attention_.forward(attention_shape(), b.qkv, b.attended, b.log_sums);
  linear_forward({.rows = rows_,
                  .in = c,
                  .out = c,
                  .x = b.attended,
                  .weight = p[kProjW].value,
                  .bias = p[kProjB].value,
                  .residual = input,
                  .y = b.middle});

  layer_norm_forward({.rows = rows_,
                      .channels = c,
                      .x = b.middle,
                      .weight = p[kNorm2W].value,
                      .bias = p[kNorm2B].value,
                      .y = b.norm2,
                      .mean = b.mean2,
                      .rstd = b.rstd2});
  linear_forward({.rows = rows_,
                  .in = c,
                  .out = 4 * c,
                  .x = b.norm2,
                  .weight = p[kFcW].value,
                  .bias = p[kFcB].value,
                  .y = b.wide});
  gelu_forward({b.wide, rows_ * 4 * c}, b.activated);
  linear_forward({.rows = rows_,
                  .in = 4 * c,
                  .out = c,
                  .x = b.activated,
                  .weight = p[kMlpW].value,
                  .bias = p[kMlpB].value,
                  .residual = b.middle,
                  .y = at_.stream[layer + 1]});
}

void Gpt2::forward_head(Parameters p) {
  const size_t c = config_.channels;
  layer_norm_forward({.rows = rows_,
                      .channels = c,
                      .x = at_.stream.back(),
                      .weight = p[kFinalW].value,
                      .bias = p[kFinalB].value,
                      .y = at_.final_norm,
                      .mean = at_.final_mean,
                      .rstd = at_.final_rstd});
  multiply(view(at_.final_norm, rows_, c), view(p[kHeadTable].value, config_.vocab, c).t(),
           matrix(at_.logits, rows_, config_.vocab));
  if (batch_.targets.empty()) return;
  loss_.sum = cross_entropy(config_.vocab, batch_.targets, at_.logits);
  loss_.tokens = static_cast<uint64_t>(
      std::count_if(batch_.targets.begin(), batch_.targets.end(), [](int32_t target) { return target >= 0; }));
}

// ---- Backward: dstream is the gradient of the residual stream where the pass stands

void Gpt2::backward_head(Parameters p) {
  const size_t c = config_.channels;
  const MatrixView dlogits = view(at_.logits, rows_, config_.vocab);
  const float scale = batch_.gradient_scale;
  multiply(dlogits, view(p[kHeadTable].value, config_.vocab, c), matrix(at_.dnarrow, rows_, c), {.product = scale});
  multiply(dlogits.t(), view(at_.final_norm, rows_, c), matrix(p[kHeadTable].gradient, config_.vocab, c), {scale, 1});
  std::fill_n(at_.dstream, rows_ * c, 0.0f);
  layer_norm_backward({.rows = rows_,
                       .channels = c,
                       .x = at_.stream.back(),
                       .weight = p[kFinalW].value,
                       .mean = at_.final_mean,
                       .rstd = at_.final_rstd,
                       .dy = at_.dnarrow,
                       .dx = at_.dstream,
                       .dweight = p[kFinalW].gradient,
                       .dbias = p[kFinalB].gradient});
}

void Gpt2::backward_block(size_t layer, Parameters p) {
  if (options_.recompute_blocks) forward_block(layer, p);
  backward_mlp(block(layer), p);
  backward_attention(block(layer), at_.stream[layer], p);
}

void Gpt2::backward_mlp(const Block& b, Parameters p) {
  const size_t c = config_.channels;
  linear_backward({.rows = rows_,
                   .in = 4 * c,
                   .out = c,
                   .x = b.activated,
                   .weight = p[kMlpW].value,
                   .dy = at_.dstream,
                   .dx = at_.dwide,
                   .dweight = p[kMlpW].gradient,
                   .dbias = p[kMlpB].gradient});
  gelu_backward({b.wide, rows_ * 4 * c}, at_.dwide);
  linear_backward({.rows = rows_,
                   .in = c,
                   .out = 4 * c,
                   .x = b.norm2,
                   .weight = p[kFcW].value,
                   .dy = at_.dwide,
                   .dx = at_.dnarrow,
                   .dweight = p[kFcW].gradient,
                   .dbias = p[kFcB].gradient});
  layer_norm_backward({.rows = rows_,
                       .channels = c,
                       .x = b.middle,
                       .weight = p[kNorm2W].value,
                       .mean = b.mean2,
                       .rstd = b.rstd2,
                       .dy = at_.dnarrow,
                       .dx = at_.dstream,
                       .dweight = p[kNorm2W].gradient,
                       .dbias = p[kNorm2B].gradient});
}

void Gpt2::backward_attention(const Block& b, const float* input, Parameters p) {
  const size_t c = config_.channels;
  linear_backward({.rows = rows_,
                   .in = c,
                   .out = c,
                   .x = b.attended,
                   .weight = p[kProjW].value,
                   .dy = at_.dstream,
                   .dx = at_.dnarrow,
                   .dweight = p[kProjW].gradient,
                   .dbias = p[kProjB].gradient});
  float* dqkv = at_.dwide;
  attention_.backward(attention_shape(), {.qkv = b.qkv, .log_sums = b.log_sums, .dout = at_.dnarrow, .dqkv = dqkv});
  linear_backward({.rows = rows_,
                   .in = c,
                   .out = 3 * c,
                   .x = b.norm1,
                   .weight = p[kAttnW].value,
                   .dy = dqkv,
                   .dx = at_.dnarrow,
                   .dweight = p[kAttnW].gradient,
                   .dbias = p[kAttnB].gradient});
  layer_norm_backward({.rows = rows_,
                       .channels = c,
                       .x = input,
                       .weight = p[kNorm1W].value,
                       .mean = b.mean1,
                       .rstd = b.rstd1,
                       .dy = at_.dnarrow,
                       .dx = at_.dstream,
                       .dweight = p[kNorm1W].gradient,
                       .dbias = p[kNorm1B].gradient});
}

void Gpt2::backward_embedding(Parameters p) {
  embedding_backward({config_.channels, batch_.length, batch_.tokens}, at_.dstream, p[kTokenTable].gradient,
                     p[kPositionTable].gradient);
}

}  // namespace shardcomm::trainer
