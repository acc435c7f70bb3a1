// GPT-2 (Radford et al., 2019): token and position embeddings, pre-norm blocks of causal attention and a GELU layer, a
// final norm and an output head tied to the token embedding. Names and layouts of parameters are those of Hugging Face.
//
// Units: "embedding", "h.0" .. "h.L-1", "head".
#pragma once
#include "tools/trainer/attention.h"
#include "tools/trainer/model.h"

namespace shardcomm::trainer {

// Positions of the parameters in their unit.
namespace gpt2 {
enum EmbeddingParameter : size_t { kTokenTable, kPositionTable };
enum BlockParameter : size_t {
  kNorm1W,
  kNorm1B,
  kAttnW,
  kAttnB,
  kProjW,
  kProjB,
  kNorm2W,
  kNorm2B,
  kFcW,
  kFcB,
  kMlpW,
  kMlpB
};
enum HeadParameter : size_t { kFinalW, kFinalB, kHeadTable };
}  // namespace gpt2

std::vector<UnitInfo> gpt2_units(const ModelConfig& config);

// Where everything between parameters and loss lies, for `rows` tokens; "narrow" rows have the model's channels.
struct Gpt2Activations {
  // What the backward pass of one block needs of its forward pass.
  struct Block {
    float *norm1, *mean1, *rstd1;      // narrow; one per row
    float *qkv, *attended, *log_sums;  // 3 x narrow; narrow; one per row and head
    float* middle;                     // narrow: the residual stream between attention and mlp
    float *norm2, *mean2, *rstd2;
    float *wide, *activated;  // 4 x narrow: before and after GELU
  };
  std::vector<float*> stream;  // the residual stream before each block, and after the last; narrow
  std::vector<Block> blocks;   // one per layer, or a single one when blocks are recomputed
  float *final_norm, *final_mean, *final_rstd;
  float* logits;                     // [rows, vocab]; after a loss their gradient, not yet scaled
  float *dstream, *dnarrow, *dwide;  // gradients on their way back; dwide also holds that of qkv

  // Points everything into memory at base (null: only count). Returns the floats used.
  size_t lay_out(const ModelConfig& config, const ModelOptions& options, float* base);
};

// Not thread-safe: one model belongs to one thread.
class Gpt2 final : public Model {
 public:
  Gpt2(const ModelConfig& config, const ModelOptions& options);  // config is valid; throws std::bad_alloc

  std::span<const UnitInfo> units() const override { return units_; }
  Status begin(const Batch& batch) override;
  Status forward(size_t unit, std::span<const Parameter> parameters) override;
  Status backward(size_t unit, std::span<const Parameter> parameters) override;
  Loss loss() const override { return loss_; }
  std::span<const float> logits() const override { return {at_.logits, rows_ * config_.vocab}; }
  size_t activation_bytes() const override;

 private:
  using Parameters = std::span<const Parameter>;
  using Block = Gpt2Activations::Block;
  Block& block(size_t layer) { return at_.blocks[options_.recompute_blocks ? 0 : layer]; }
  AttentionShape attention_shape() const;

  void forward_embedding(Parameters p);
  void forward_block(size_t layer, Parameters p);
  void forward_head(Parameters p);
  void backward_embedding(Parameters p);
  void backward_block(size_t layer, Parameters p);
  void backward_mlp(const Block& kept, Parameters p);
  void backward_attention(const Block& kept, const float* input, Parameters p);
  void backward_head(Parameters p);

  ModelConfig config_;
  ModelOptions options_;
  std::vector<UnitInfo> units_;
  Gpt2Activations at_;         // points into memory_
  std::vector<float> memory_;  // sized by counting at_, so declared after it
  Attention attention_;

  Batch batch_;
  size_t rows_ = 0;  // tokens in the batch
  Loss loss_;
};

}  // namespace shardcomm::trainer
