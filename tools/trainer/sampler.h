// Chooses the next token from a model's logits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shardcomm/status.h"

namespace shardcomm::trainer {

struct SamplerOptions {
  double temperature = 1;  // 0: always the most likely token
  size_t top_k = 0;        // only the k most likely tokens; 0: all
  uint64_t seed = 0;
};

Status validate(const SamplerOptions& options);

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options) : options_(options) {}
  // The n-th call draws the n-th random number of the seed's stream. Among equal logits the smaller token comes first.
  int32_t next(std::span<const float> logits);

 private:
  SamplerOptions options_;
  uint64_t draws_ = 0;
  std::vector<int32_t> order_;   // tokens by falling logit
  std::vector<double> weights_;  // of the candidates, in that order
};

}  // namespace shardcomm::trainer
