// What people name when they mean a checkpoint.
#pragma once
#include <string>

#include "shardcomm/status.h"

namespace shardcomm::tools {

// `path` itself where it is a step directory, else the newest complete one in it. kUnavailable where there is none.
Result<std::string> checkpoint_path(const std::string& path);

}  // namespace shardcomm::tools
