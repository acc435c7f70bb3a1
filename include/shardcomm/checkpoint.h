// Checkpoints: a directory step-00000010/ of safetensors shards, one per writing rank, each with its tensors' element
// ranges in the metadata, and manifest.json, written last by atomic rename. A directory without it does not count.
// A checkpoint of any world size loads at any other.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "shardcomm/optimizer.h"

namespace shardcomm {

// Collective: parameters (f32 masters), moments, step count, and `trainer_state` (a JSON object of the caller's own).
// Data, fsync, agreement of all ranks, rename; a failure on one rank is the same error on all, and nothing counts.
// kFailedPrecondition in an update, and where parameters were written outside one (zero.h): what would be saved is
// wrong. Returns the directory written, DIR/step-NNNNNNNN. keep > 0 then removes all but the newest `keep` complete
// ones.
SHARDCOMM_EXPORT Result<std::string> save_checkpoint(ZeroEngine& engine, AdamW& optimizer, const std::string& dir,
                                                     uint64_t step, const std::string& trainer_state, int keep = 0);

struct LoadedCheckpoint {
  uint64_t step = 0;
  std::string trainer_state;
};
// Collective. `path` is one step directory. Checks names, shapes and checksums before anything is overwritten.
SHARDCOMM_EXPORT Result<LoadedCheckpoint> load_checkpoint(ZeroEngine& engine, AdamW& optimizer,
                                                          const std::string& path);

// The newest complete step directory in `dir`; "" if there is none. Incomplete ones are named in a warning.
SHARDCOMM_EXPORT Result<std::string> newest_checkpoint(const std::string& dir);

struct CheckpointTensor {
  std::string name;
  std::vector<size_t> shape;
  std::string dtype;
};
struct CheckpointInfo {
  uint64_t step = 0;
  int world_size = 0;
  size_t total_bytes = 0;
  std::vector<CheckpointTensor> tensors;
  std::vector<std::string> files;
  std::string trainer_state;
};
// Local, for tools and for generation. verify reads every byte and compares checksums: kDataLoss names file and tensor.
SHARDCOMM_EXPORT Result<CheckpointInfo> inspect_checkpoint(const std::string& path);
SHARDCOMM_EXPORT Status verify_checkpoint(const std::string& path);
SHARDCOMM_EXPORT Result<std::vector<float>> read_checkpoint_parameter(const std::string& path, const std::string& name);

}  // namespace shardcomm
