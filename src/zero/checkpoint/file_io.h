// Files as checkpoints need them: every call says which path and why it failed, and what must be on disk is synced.
// Free functions and distinct objects: any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/status.h"

namespace shardcomm::zero {

// For tests: called before each step that touches the file system ("create", "write", "sync", "rename", …); an errno it
// returns is that step's failure. Null: none. Set while no checkpoint is being written.
using FileHook = int (*)(const char* step, const char* path);
void set_file_hook(FileHook hook) noexcept;

class File {
 public:
  static Result<File> create(std::string path);  // empties what was there
  static Result<File> open(std::string path);    // to read
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  Status write(std::span<const std::byte> bytes);  // appends
  Status sync();
  // kDataLoss when the file ends before.
  Status read_at(uint64_t offset, std::span<std::byte> bytes) const;
  uint64_t size_bytes() const noexcept { return size_bytes_; }  // when opened
  const std::string& path() const noexcept { return path_; }

 private:
  File(int descriptor, std::string path) noexcept : descriptor_(descriptor), path_(std::move(path)) {}
  int descriptor_ = -1;
  std::string path_;
  uint64_t size_bytes_ = 0;
};

Status make_directories(const std::string& path);
Status sync_directory(const std::string& path);
Status rename_file(const std::string& from, const std::string& to);
Status remove_file(const std::string& path);       // a missing one is gone already
Status remove_directory(const std::string& path);  // an empty one
bool is_file(const std::string& path);
// Names, sorted; none for a directory that does not exist.
Result<std::vector<std::string>> list_directory(const std::string& path);
Result<std::string> read_text(const std::string& path, size_t max_bytes);
// Written beside, synced, renamed, and the directory synced: afterwards `path` holds all of it, before it nothing new.
Status replace_text(const std::string& path, std::string_view text);

}  // namespace shardcomm::zero
