// Checkpoints: a directory step-00000010/ of safetensors shards, one per writing rank, each with its tensors' element
// ranges in the metadata, and manifest.json, written last by atomic rename. A directory without it does not count.
// A checkpoint of any world size, stage and bucket size loads at any other: parameters, and the state of an optimizer
// that lies beside them.
//
//   save_checkpoint(engine, dir, step, {.states = {{"momentum", momentum}}, .trainer_state = R"({"epoch": 3})"});
//   …
//   load_checkpoint(engine, path, {.states = {{"momentum", momentum}}});
//
// Without states and without AdamW a checkpoint holds the parameters only.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shardcomm/optimizer.h"

namespace shardcomm {

// An array that a checkpoint keeps beside the parameters, like the moments of an optimizer: one f32 element for each
// element of the trainable parameters. `values` has ZeroEngine::optimized_count() of them, of which a ShardPiece has
// those from its state_offset on. What is equal on all ranks, like a number of steps, belongs in trainer_state.
struct NamedState {
  // Letters, digits, '_', '-' and '.', 64 at most; equal on all ranks. The state of parameter "h.0.w" is the tensor
  // "h.0.w/NAME".
  std::string name;
  std::span<float> values;  // a save reads them, a load writes them
};

struct SaveCheckpointArgs {
  const AdamW* optimizer = nullptr;     // its moments, as the states "m" and "v", and its step count; null: none
  std::vector<NamedState> states = {};  // further ones; in any order
  std::string trainer_state = "{}";     // a JSON object of the caller's own
  int keep = 0;                         // > 0: then removes all but the newest `keep` complete checkpoints
};

// Collective: parameters (f32 masters), states and trainer_state. Data, fsync, agreement of all ranks, rename; a
// failure on one rank is the same error on all, and nothing counts. Returns the directory written, DIR/step-NNNNNNNN.
// kInvalidArgument for a state of another size or with a name that is not unique. kFailedPrecondition in an update, and
// where parameters were written outside one (zero.h): what would be saved is wrong.
SHARDCOMM_EXPORT Result<std::string> save_checkpoint(ZeroEngine& engine, const std::string& dir, uint64_t step,
                                                     const SaveCheckpointArgs& args = {});
// The same, for parameters and AdamW.
SHARDCOMM_EXPORT Result<std::string> save_checkpoint(ZeroEngine& engine, AdamW& optimizer, const std::string& dir,
                                                     uint64_t step, const std::string& trainer_state, int keep = 0);

struct LoadCheckpointArgs {
  AdamW* optimizer = nullptr;           // takes "m", "v" and the step count
  std::vector<NamedState> states = {};  // must be there, for every parameter that is trainable now
  // States that nobody asked for are refused, because a run that goes on without its moments is another run. True: they
  // are left where they are, and named in a line of the log (info); for inference, or to begin anew.
  bool ignore_other_states = false;
};
struct LoadedCheckpoint {
  uint64_t step = 0;
  std::string trainer_state;
  uint64_t optimizer_steps = 0;  // of AdamW; 0 if it was saved without
};
// Collective. `path` is one step directory. Checks names, shapes and checksums before anything is overwritten.
// kInvalidArgument for another model, and for states that are missing or unasked for: the text names those that were
// asked for and those that are there. The states of what was trainable and is frozen now are left where they are.
SHARDCOMM_EXPORT Result<LoadedCheckpoint> load_checkpoint(ZeroEngine& engine, const std::string& path,
                                                          const LoadCheckpointArgs& args = {});
// The same, for parameters and AdamW, with no other states.
SHARDCOMM_EXPORT Result<LoadedCheckpoint> load_checkpoint(ZeroEngine& engine, AdamW& optimizer,
                                                          const std::string& path);

// The newest complete step directory in `dir`; "" if there is none. Incomplete ones are named in a warning.
SHARDCOMM_EXPORT Result<std::string> newest_checkpoint(const std::string& dir);

struct CheckpointTensor {
  std::string name;
  std::vector<size_t> shape;
  std::string dtype;
  std::string state = {};  // "m" of "h.0.w/m"; "" for a parameter
};
struct CheckpointInfo {
  uint64_t step = 0;
  int world_size = 0;
  size_t total_bytes = 0;
  std::vector<CheckpointTensor> tensors;
  std::vector<std::string> files;
  std::string trainer_state;
  std::vector<std::string> states = {};  // names, sorted; "m" and "v" are AdamW's, if `optimizer` says so
  std::string optimizer = {};            // "adamw", or "" if it was saved without
  uint64_t optimizer_steps = 0;
};
// Local, for tools and for generation. verify reads every byte and compares checksums: kDataLoss names file and tensor.
SHARDCOMM_EXPORT Result<CheckpointInfo> inspect_checkpoint(const std::string& path);
SHARDCOMM_EXPORT Status verify_checkpoint(const std::string& path);
// The whole of a parameter, "h.0.w", or of a state beside it, "h.0.w/momentum"; of tied ones by each of their names.
SHARDCOMM_EXPORT Result<std::vector<float>> read_checkpoint_parameter(const std::string& path, const std::string& name);

}  // namespace shardcomm
