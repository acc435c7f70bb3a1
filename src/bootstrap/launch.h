// What launchers tell a process: its place in the job, and where rank 0 is.
#pragma once
#include "bootstrap/socket.h"
#include "shardcomm/store.h"

namespace shardcomm::bootstrap {

// Where "env://" meets: MASTER_ADDR and MASTER_PORT, for a process that a launcher gave a rank. The error names every
// variable that is missing.
Result<Endpoint> launched_endpoint();

std::optional<uint16_t> parse_port(std::string_view text);  // 1 to 65535

}  // namespace shardcomm::bootstrap
