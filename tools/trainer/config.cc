#include "tools/trainer/config.h"

#include <string_view>

namespace shardcomm::trainer {
namespace {

Status in_range(std::string_view field, size_t value, size_t smallest, size_t largest) {
  if (value >= smallest && value <= largest) return {};
  return Status(Code::kInvalidArgument, std::string(field) + " is " + std::to_string(value) + "; it must be between " +
                                            std::to_string(smallest) + " and " + std::to_string(largest));
}

// Weights that take part in a matrix product, once per token: the blocks and the tied head.
uint64_t product_weights(const ModelConfig& c) {
  return uint64_t{12} * c.layers * c.channels * c.channels + uint64_t{c.vocab} * c.channels;
}

}  // namespace

Status validate(const ModelConfig& config) {
  if (config.model != "gpt2") {
    return Status(Code::kInvalidArgument, "model is '" + config.model + "'; the models are: gpt2");
  }
  SHARDCOMM_TRY(in_range("layers", config.layers, 1, 1024));
  SHARDCOMM_TRY(in_range("heads", config.heads, 1, 1024));
  SHARDCOMM_TRY(in_range("channels", config.channels, 1, 65536));
  SHARDCOMM_TRY(in_range("seq", config.seq, 1, 1 << 20));
  SHARDCOMM_TRY(in_range("vocab", config.vocab, 2, 65536));  // tokens are kept in 16 bits
  if (config.channels % config.heads != 0) {
    return Status(Code::kInvalidArgument, "channels is " + std::to_string(config.channels) +
                                              ", not a multiple of heads, " + std::to_string(config.heads));
  }
  return {};
}

uint64_t parameter_count(const ModelConfig& c) {
  const uint64_t block = uint64_t{12} * c.channels * c.channels + uint64_t{13} * c.channels;
  return (uint64_t{c.vocab} + c.seq + 2) * c.channels + c.layers * block;
}

double flops_per_token(const ModelConfig& c) {
  const double keys = (static_cast<double>(c.seq) + 1) / 2;
  const double attention_weights = 2 * keys * static_cast<double>(c.channels) * static_cast<double>(c.layers);
  return 6 * (static_cast<double>(product_weights(c)) + attention_weights);
}

}  // namespace shardcomm::trainer
