#include "zero/checkpoint/directory.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "shardcomm/checkpoint.h"
#include "zero/checkpoint/file_io.h"
#include "zero/checkpoint/manifest.h"

namespace shardcomm::zero {
namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kShardSuffix = ".safetensors";

bool is_shard_file(std::string_view name) { return name.starts_with("shard-") && name.ends_with(kShardSuffix); }

}  // namespace

std::string step_name(uint64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

std::optional<uint64_t> parse_step_name(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const auto step = parse_count(name.substr(kStepPrefix.size()));
  return step && step_name(*step) == name ? step : std::nullopt;
}

std::string shard_file_name(int rank, int world_size, uint64_t generation) {
  const std::string again = generation == 0 ? "" : fmt::format("-{}", generation);
  return fmt::format("shard-{:04}-of-{:04}{}{}", rank, world_size, again, kShardSuffix);
}

Result<std::vector<StepDirectory>> list_steps(const std::string& dir) {
  SHARDCOMM_TRY_ASSIGN(const auto names, list_directory(dir));
  std::vector<StepDirectory> steps;
  for (const std::string& name : names) {
    const auto step = parse_step_name(name);
    if (!step) continue;
    const std::string path = fmt::format("{}/{}", dir, name);
    steps.push_back({*step, path, is_file(fmt::format("{}/{}", path, kManifestName))});
  }
  std::sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return steps;
}

Status remove_checkpoint(const std::string& path) {
  SHARDCOMM_TRY(remove_file(fmt::format("{}/{}", path, kManifestName)));
  SHARDCOMM_TRY(sync_directory(path));
  SHARDCOMM_TRY(remove_file(fmt::format("{}/{}.tmp", path, kManifestName)));
  SHARDCOMM_TRY(remove_other_generations(path, {}));
  SHARDCOMM_TRY_ASSIGN(const auto left, list_directory(path));
  return left.empty() ? remove_directory(path) : Status();
}

Status remove_other_generations(const std::string& path, const std::vector<std::string>& kept_files) {
  SHARDCOMM_TRY_ASSIGN(const auto names, list_directory(path));
  for (const std::string& name : names) {
    const bool kept = std::find(kept_files.begin(), kept_files.end(), name) != kept_files.end();
    if (is_shard_file(name) && !kept) SHARDCOMM_TRY(remove_file(fmt::format("{}/{}", path, name)));
  }
  return {};
}

Status prune_checkpoints(const std::string& dir, const std::string& written, size_t keep) {
  SHARDCOMM_TRY_ASSIGN(const auto steps, list_steps(dir));
  size_t complete = 0;
  const uint64_t newest = steps.empty() ? 0 : steps.back().step;
  for (size_t i = steps.size(); i-- > 0;) {
    const StepDirectory& step = steps[i];
    if (step.complete) ++complete;
    // One that is incomplete and newer than all others may be somebody's work in progress.
    const bool stays = step.path == written || (step.complete ? complete <= keep : step.step == newest);
    if (!stays) SHARDCOMM_TRY(remove_checkpoint(step.path));
  }
  return {};
}

}  // namespace shardcomm::zero

namespace shardcomm {

Result<std::string> newest_checkpoint(const std::string& dir) {
  SHARDCOMM_TRY_ASSIGN(const auto steps, zero::list_steps(dir));
  for (size_t i = steps.size(); i-- > 0;) {
    if (steps[i].complete) return steps[i].path;
    log(Level::kWarn, "checkpoint {} is incomplete and skipped: it has no {}", steps[i].path, zero::kManifestName);
  }
  return std::string();
}

}  // namespace shardcomm
