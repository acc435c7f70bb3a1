#include "tools/trainer/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace shardcomm::trainer {
namespace {

namespace fs = std::filesystem;

Status cannot_write(const std::string& path, int error) {
  return Status::native(Origin::kErrno, error, fmt::format("write '{}'", path));
}

// Follows links; errno's value, 0 where it is a directory that takes new entries.
int closed_to_us(const fs::path& directory) {
  std::error_code error;
  const fs::file_status status = fs::status(directory, error);
  if (!fs::is_directory(status)) return error ? error.value() : ENOTDIR;
  return access(directory.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
}

}  // namespace

Status check_output_file(const std::string& path) {
  if (path.empty()) return {};
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return cannot_write(path, EISDIR);
  if (fs::exists(status)) return access(path.c_str(), W_OK) == 0 ? Status() : cannot_write(path, errno);
  const fs::path parent = fs::path(path).parent_path();
  const int reason = closed_to_us(parent.empty() ? "." : parent);
  return reason == 0 ? Status() : cannot_write(path, reason);
}

Status check_output_directory(const std::string& path) {
  if (path.empty()) return {};
  fs::path nearest = fs::path(path).lexically_normal();
  std::error_code error;
  // Up to what is there already; what stands in the way of a directory is there, too.
  while (!nearest.empty() && !fs::exists(fs::symlink_status(nearest, error)) && nearest != nearest.parent_path())
    nearest = nearest.parent_path();
  const int reason = closed_to_us(nearest.empty() ? "." : nearest);
  return reason == 0 ? Status() : cannot_write(path, reason);
}

Status write_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  std::FILE* file = std::fopen(temporary.c_str(), "w");
  if (file == nullptr) return Status::native(Origin::kErrno, errno, fmt::format("open '{}'", temporary));
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = std::fclose(file) == 0;
  if (written && closed && std::rename(temporary.c_str(), path.c_str()) == 0) return {};
  const Status failed = cannot_write(path, errno);
  std::remove(temporary.c_str());
  return failed;
}

}  // namespace shardcomm::trainer
