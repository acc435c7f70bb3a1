// GPT-2 as data: its parameters, and the layout of its activations.
#include <algorithm>
#include <cmath>

#include "tools/trainer/gpt2.h"

namespace shardcomm::trainer {
namespace {

constexpr InitRule kZeros{0, 0};
constexpr InitRule kOnes{1, 0};

// Normal with variance 2 / (5 channels) (Nguyen and Salazar, "Transformers without tears", 2019). At GPT-2's 768
// channels this is 0.023, close to its own 0.02; a narrow model starts from larger weights and leaves the bigram
// plateau much sooner.
double weight_stddev(const ModelConfig& config) { return std::sqrt(0.4 / static_cast<double>(config.channels)); }

ParameterInfo matrix_of(std::string name, size_t rows, size_t columns, InitRule init) {
  return {.name = std::move(name), .shape = {rows, columns}, .init = init, .decay = true};
}

ParameterInfo vector_of(std::string name, size_t count, InitRule init) {
  return {.name = std::move(name), .shape = {count}, .init = init, .decay = false};
}

UnitInfo block_unit(const ModelConfig& config, size_t layer) {
  const size_t c = config.channels;
  const std::string unit = "h." + std::to_string(layer);
  const InitRule normal{0, static_cast<float>(weight_stddev(config))};
  // What is added to the residual stream starts smaller, so that the sum over all layers starts at the same size.
  const InitRule residual{
      0, static_cast<float>(weight_stddev(config) / std::sqrt(2.0 * static_cast<double>(config.layers)))};
  return {unit,
          {vector_of("ln_1.weight", c, kOnes), vector_of("ln_1.bias", c, kZeros),
           matrix_of("attn.c_attn.weight", c, 3 * c, normal), vector_of("attn.c_attn.bias", 3 * c, kZeros),
           matrix_of("attn.c_proj.weight", c, c, residual), vector_of("attn.c_proj.bias", c, kZeros),
           vector_of("ln_2.weight", c, kOnes), vector_of("ln_2.bias", c, kZeros),
           matrix_of("mlp.c_fc.weight", c, 4 * c, normal), vector_of("mlp.c_fc.bias", 4 * c, kZeros),
           matrix_of("mlp.c_proj.weight", 4 * c, c, residual), vector_of("mlp.c_proj.bias", c, kZeros)}};
}

// Hands out consecutive pieces of memory; without memory it only counts, and stops counting where no memory can follow.
class Arena {
 public:
  static constexpr size_t kTooMany = size_t{1} << 61;  // floats; above what a vector may hold

  explicit Arena(float* base) : base_(base) {}
  float* take(size_t rows, size_t columns) {
    float* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ = std::min(used_ + (rows * columns + 15) / 16 * 16, kTooMany);  // whole cache lines
    return piece;
  }
  size_t used() const { return used_; }

 private:
  float* base_;
  size_t used_ = 0;
};

Gpt2Activations::Block take_block(Arena& arena, const ModelConfig& config, size_t rows) {
  const size_t c = config.channels;
  Gpt2Activations::Block block{};
  block.norm1 = arena.take(rows, c);
  block.mean1 = arena.take(rows, 1);
  block.rstd1 = arena.take(rows, 1);
  block.qkv = arena.take(rows, 3 * c);
  block.attended = arena.take(rows, c);
  block.log_sums = arena.take(rows, config.heads);
  block.middle = arena.take(rows, c);
  block.norm2 = arena.take(rows, c);
  block.mean2 = arena.take(rows, 1);
  block.rstd2 = arena.take(rows, 1);
  block.wide = arena.take(rows, 4 * c);
  block.activated = arena.take(rows, 4 * c);
  return block;
}

}  // namespace

std::vector<UnitInfo> gpt2_units(const ModelConfig& config) {
  const InitRule normal{0, static_cast<float>(weight_stddev(config))};
  const ParameterInfo token_table = matrix_of("wte.weight", config.vocab, config.channels, normal);
  ParameterInfo head_table = token_table;
  head_table.tied_to = "embedding.wte.weight";
  std::vector<UnitInfo> units;
  units.push_back({"embedding", {token_table, matrix_of("wpe.weight", config.seq, config.channels, normal)}});
  for (size_t layer = 0; layer < config.layers; ++layer) units.push_back(block_unit(config, layer));
  units.push_back({"head",
                   {vector_of("ln_f.weight", config.channels, kOnes), vector_of("ln_f.bias", config.channels, kZeros),
                    head_table}});
  return units;
}

size_t Gpt2Activations::lay_out(const ModelConfig& config, const ModelOptions& options, float* base) {
  Arena arena(base);
  const size_t rows = options.sequences * config.seq;
  const size_t c = config.channels;
  stream.clear();
  blocks.clear();
  for (size_t i = 0; i <= config.layers; ++i) stream.push_back(arena.take(rows, c));
  const size_t kept_blocks = options.recompute_blocks ? 1 : config.layers;
  for (size_t i = 0; i < kept_blocks; ++i) blocks.push_back(take_block(arena, config, rows));
  final_norm = arena.take(rows, c);
  final_mean = arena.take(rows, 1);
  final_rstd = arena.take(rows, 1);
  logits = arena.take(rows, config.vocab);
  dstream = arena.take(rows, c);
  dnarrow = arena.take(rows, c);
  dwide = arena.take(rows, 4 * c);
  return arena.used();
}

}  // namespace shardcomm::trainer
