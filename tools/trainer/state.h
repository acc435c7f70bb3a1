// What a trainer keeps in a checkpoint besides tensors: enough to go on, and to build the model for generation.
#pragma once
#include <cstdint>
#include <string>

#include "shardcomm/status.h"
#include "tools/trainer/config.h"

namespace shardcomm::trainer {

struct RunState {
  ModelConfig model;
  uint64_t seed = 0;
  uint64_t train_tokens = 0;  // of the training text: the data order depends on it
  uint64_t position = 0;      // samples consumed
  uint64_t tokens = 0;        // trained on
};

std::string state_text(const RunState& state);  // a JSON object
// `where` names the checkpoint in errors: kDataLoss where the text is not what state_text writes.
Result<RunState> parse_state(const std::string& where, const std::string& text);
std::string describe(const ModelConfig& config);  // "gpt2 layers 4 heads 4 channels 128 seq 128 vocab 257"

}  // namespace shardcomm::trainer
