// Where checkpoints lie: dir/step-00000010/. One that has a manifest is complete.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/status.h"

namespace shardcomm::zero {

std::string step_name(uint64_t step);  // "step-00000010"
std::optional<uint64_t> parse_step_name(std::string_view name);
std::string shard_file_name(int rank, int world_size, uint64_t generation);  // "shard-0001-of-0004.safetensors"

struct StepDirectory {
  uint64_t step;
  std::string path;
  bool complete;
};
// In `dir`, oldest first.
Result<std::vector<StepDirectory>> list_steps(const std::string& dir);

// Removes the files of a checkpoint, its manifest first, and then its directory. What is not a checkpoint's file stays,
// and its directory with it.
Status remove_checkpoint(const std::string& path);
// Removes the shard files in `path` that are not among `kept_files`.
Status remove_other_generations(const std::string& path, const std::vector<std::string>& kept_files);
// Keeps the newest `keep` complete ones and `written`; older incomplete ones go too.
Status prune_checkpoints(const std::string& dir, const std::string& written, size_t keep);

}  // namespace shardcomm::zero
