#include "tools/checkpoint_path.h"

#include <fmt/format.h>

#include <filesystem>

#include "shardcomm/checkpoint.h"

namespace shardcomm::tools {

Result<std::string> checkpoint_path(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return Status::native(Origin::kErrno, ENOENT, fmt::format("open '{}'", path));
  if (std::filesystem::path(path).filename().string().starts_with("step-") ||
      std::filesystem::exists(std::filesystem::path(path) / "manifest.json", error))
    return path;
  SHARDCOMM_TRY_ASSIGN(const std::string newest, newest_checkpoint(path));
  if (newest.empty()) return Status(Code::kUnavailable, fmt::format("'{}' holds no complete checkpoint", path));
  return newest;
}

}  // namespace shardcomm::tools
