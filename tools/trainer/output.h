// Files that a run writes: found out before it begins whether they can be, written whole or not at all at its end.
#pragma once
#include <string>

#include "shardcomm/status.h"

namespace shardcomm::trainer {

// Whether a file can be written there: its directory exists and can be written to, and it is no directory itself.
// Creates nothing. An empty path is fine.
Status check_output_file(const std::string& path);
// Whether a directory is or can be made there, and written to.
Status check_output_directory(const std::string& path);

// Replaces the file's content at once, or leaves it as it was.
Status write_file(const std::string& path, const std::string& text);

}  // namespace shardcomm::trainer
