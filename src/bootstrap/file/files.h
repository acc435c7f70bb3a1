// The few things a file store does with files: whole files that appear at once, and locks that show whether the
// process that made a file still lives.
#pragma once
#include <string>
#include <string_view>

#include "bootstrap/socket.h"

namespace shardcomm::bootstrap {

// All bytes; kUnavailable (ENOENT) where it does not exist.
Result<std::string> read_file(const std::string& path);

// A new file of these bytes, locked for as long as the Fd (or a forked child's copy of it) is open. It gets its name
// only when it is whole. `temporary` is a free name in the same directory.
struct NewFile {
  std::string path, temporary;
  std::string_view bytes;
  bool replace = false;  // take the place of a file of that name; without it that is EEXIST
};
Result<Fd> publish(const NewFile& file);

// Whether the process that published a file lives. kAbandoned: it ended, or closed the Fd, and the file is still there.
enum class Presence : uint8_t { kNone, kHeld, kAbandoned };
Presence presence(const std::string& path);

bool same_file(int fd, const std::string& path);

// A file name for a key: bytes other than letters, digits, '-', '_' and inner '.' become %XX; long ones a digest.
std::string file_name_of(std::string_view key);

}  // namespace shardcomm::bootstrap
