// How a trainer goes on from a checkpoint: which one, and whether it fits.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/trainer/state.h"
#include "tools/trainer/trainer.h"

namespace shardcomm::trainer {
namespace {

constexpr size_t kPathBytes = 4096;

// Rank 0 looks; all go where it says, so that no two ranks resume differently.
Result<std::string> agree_on_path(Communicator& comm, const TrainOptions& options) {
  struct Choice {
    int32_t code;
    char text[kPathBytes];
  };
  auto choice = std::make_unique<Choice>();
  if (comm.rank() == 0) {
    Result<std::string> found =
        options.resume == "auto" ? newest_checkpoint(options.save_dir) : Result<std::string>(options.resume);
    const std::string text(found.ok() ? *found : std::string(found.status().message()));
    choice->code = static_cast<int32_t>(found.status().code());
    text.copy(choice->text, kPathBytes - 1);
  }
  SHARDCOMM_TRY(comm.broadcast({choice.get(), sizeof *choice, DType::kU8, 0, "resume"}, StreamRef::caller()).status());
  if (choice->code != 0) return Status(static_cast<Code>(choice->code), choice->text);
  return std::string(choice->text);
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
