#include "zero/checkpoint/file_io.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

namespace shardcomm::zero {
namespace {

std::atomic<FileHook> file_hook{nullptr};

Status failure(int error, const char* step, const std::string& path) {
  return Status::native(Origin::kErrno, error, fmt::format("{} {}", step, path));
}

// What the hook says about a step.
Status hooked(const char* step, const std::string& path) {
  const FileHook hook = file_hook.load(std::memory_order_relaxed);
  const int error = hook == nullptr ? 0 : hook(step, path.c_str());
  return error == 0 ? Status() : failure(error, step, path);
}

// One system call as one step.
template <class Call>
Status step(const char* name, const std::string& path, Call call) {
  SHARDCOMM_TRY(hooked(name, path));
  return call() < 0 ? failure(errno, name, path) : Status();
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

void set_file_hook(FileHook hook) noexcept { file_hook.store(hook); }

Result<File> File::create(std::string path) {
  File file(-1, std::move(path));
  SHARDCOMM_TRY(step("create", file.path_, [&] {
    return file.descriptor_ = ::open(file.path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  }));
  return file;
}

Result<File> File::open(std::string path) {
  File file(-1, std::move(path));
  SHARDCOMM_TRY(
      step("open", file.path_, [&] { return file.descriptor_ = ::open(file.path_.c_str(), O_RDONLY | O_CLOEXEC); }));
  struct stat about {};
  SHARDCOMM_TRY(step("stat", file.path_, [&] { return fstat(file.descriptor_, &about); }));
  if (!S_ISREG(about.st_mode)) return Status(Code::kDataLoss, fmt::format("{} is not a regular file", file.path_));
  file.size_bytes_ = static_cast<uint64_t>(about.st_size);
  return file;
}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      size_bytes_(other.size_bytes_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status File::write(std::span<const std::byte> bytes) {
  SHARDCOMM_TRY(hooked("write", path_));
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failure(errno, "write", path_);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Status File::sync() {
  return step("sync", path_, [&] { return fsync(descriptor_); });
}

Status File::read_at(uint64_t offset, std::span<std::byte> bytes) const {
  SHARDCOMM_TRY(hooked("read", path_));
  while (!bytes.empty()) {
    const ssize_t got = pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failure(errno, "read", path_);
    if (got == 0)
      return Status(Code::kDataLoss, fmt::format("{} ends at byte {}, {} bytes early", path_, offset, bytes.size()));
    bytes = bytes.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return {};
}

Status make_directories(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    struct stat about {};
    const bool exists = stat(part.c_str(), &about) == 0 && S_ISDIR(about.st_mode);
    if (!exists) {
      SHARDCOMM_TRY(
          step("make directory", part, [&] { return mkdir(part.c_str(), 0755) == 0 || errno == EEXIST ? 0 : -1; }));
      SHARDCOMM_TRY(sync_directory(parent_of(part)));
    }
    if (end == std::string::npos) return {};
  }
}

Status sync_directory(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return failure(errno, "open directory", path);
  const Status synced = step("sync", path, [&] { return fsync(descriptor); });
  ::close(descriptor);
  return synced;
}

Status rename_file(const std::string& from, const std::string& to) {
  return step("rename", from, [&] { return std::rename(from.c_str(), to.c_str()); });
}

Status remove_file(const std::string& path) {
  return step("remove", path, [&] { return unlink(path.c_str()) == 0 || errno == ENOENT ? 0 : -1; });
}

Status remove_directory(const std::string& path) {
  return step("remove", path, [&] { return rmdir(path.c_str()); });
}

bool is_file(const std::string& path) {
  struct stat about {};
  return stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode);
}

Result<std::vector<std::string>> list_directory(const std::string& path) {
  std::vector<std::string> names;
  SHARDCOMM_TRY(hooked("list", path));
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path.c_str()), closedir);
  if (directory == nullptr) return errno == ENOENT ? Result(names) : failure(errno, "list", path);
  errno = 0;
  while (const dirent* entry = readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return failure(errno, "list", path);
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::string> read_text(const std::string& path, size_t max_bytes) {
  SHARDCOMM_TRY_ASSIGN(const File file, File::open(path));
  if (file.size_bytes() > max_bytes) {
    return Status(Code::kDataLoss,
                  fmt::format("{} has {} bytes, more than the {} it may have", path, file.size_bytes(), max_bytes));
  }
  std::string text(static_cast<size_t>(file.size_bytes()), '\0');
  SHARDCOMM_TRY(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Status replace_text(const std::string& path, std::string_view text) {
  const std::string beside = path + ".tmp";
  {
    SHARDCOMM_TRY_ASSIGN(File file, File::create(beside));
    SHARDCOMM_TRY(file.write(std::as_bytes(std::span(text))));
    SHARDCOMM_TRY(file.sync());
  }
  SHARDCOMM_TRY(rename_file(beside, path));
  return sync_directory(parent_of(path));
}

}  // namespace shardcomm::zero
