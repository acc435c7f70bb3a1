// How a trainer goes on from a checkpoint: which one, and whether it fits.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/trainer/agree.h"
#include "tools/trainer/state.h"
#include "tools/trainer/trainer.h"

namespace shardcomm::trainer {
namespace {

// Rank 0 looks; all go where it says, so that no two ranks resume differently.
Result<std::string> agree_on_path(Communicator& comm, const TrainOptions& options) {
  return answer_of_first(comm, [&]() -> Result<std::string> {
    return options.resume == "auto" ? newest_checkpoint(options.save_dir) : options.resume;
  });
}

}  // namespace

Status Trainer::resume() {
  if (options_.resume.empty()) return {};
  SHARDCOMM_TRY_ASSIGN(const std::string path, agree_on_path(comm_, options_));
  if (path.empty()) return {};  // "auto" with nothing to resume: the run begins
  // The shape is compared before anything is loaded: a difference is better said as a model than as a tensor.
  SHARDCOMM_TRY_ASSIGN(const CheckpointInfo info, inspect_checkpoint(path));
  SHARDCOMM_TRY_ASSIGN(const RunState state, parse_state(path, info.trainer_state));
  if (!(state.model == options_.model)) {
    return Status(Code::kInvalidArgument, fmt::format("'{}' is of another model: {}; this run is of {}", path,
                                                      describe(state.model), describe(options_.model)));
  }
  if (state.seed != options_.seed || state.train_tokens != data_.train_tokens()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' was trained with seed {} on {} tokens, this run has seed {} and {} tokens: samples "
                              "would repeat or be skipped",
                              path, state.seed, state.train_tokens, options_.seed, data_.train_tokens()));
  }
  SHARDCOMM_TRY_ASSIGN(const LoadedCheckpoint loaded, load_checkpoint(*engine_, *optimizer_, path));
  steps_done_ = loaded.step;
  position_ = state.position;
  tokens_ = state.tokens;
  resumed_ = true;
  return {};
}

}  // namespace shardcomm::trainer
