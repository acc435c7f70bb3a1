// The shape of a model, and what follows from it: parameters and floating point operations.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "shardcomm/status.h"

namespace shardcomm::trainer {

struct ModelConfig {
  std::string model = "gpt2";
  size_t layers = 4;
  size_t heads = 4;
  size_t channels = 128;  // width of the residual stream, a multiple of heads
  size_t seq = 128;       // longest sequence, in tokens
  size_t vocab = 257;     // 256 bytes and end-of-text

  bool operator==(const ModelConfig&) const = default;
};

// Says which field is wrong, what it is and what it may be.
Status validate(const ModelConfig& config);

// Distinct parameters: the output head shares its matrix with the token embedding and is not counted twice.
uint64_t parameter_count(const ModelConfig& config);

// Forward and backward for one token of a full sequence: 6 per weight of a matrix product (2 forward, 4 backward) and
// the two products of causal attention, which see (seq + 1) / 2 keys on average. The numerator of model flops
// utilization.
double flops_per_token(const ModelConfig& config);

}  // namespace shardcomm::trainer
