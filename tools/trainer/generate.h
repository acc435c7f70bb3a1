// Text from a checkpoint, in one process: the whole model is read into memory, at whatever world size it was written.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "shardcomm/status.h"
#include "tools/trainer/sampler.h"

namespace shardcomm::trainer {

struct GenerateOptions {
  std::string checkpoint;  // a step directory
  std::string prompt;
  size_t tokens = 256;  // to generate; ends earlier at an end-of-text
  SamplerOptions sampler;
};

// `emit` gets the text as it comes, without the prompt.
Status generate(const GenerateOptions& options, const std::function<void(std::string_view)>& emit);

}  // namespace shardcomm::trainer
