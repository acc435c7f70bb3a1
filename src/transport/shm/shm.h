// Shared host memory of one node: ranks that are processes map each other's memfds, ranks that are threads use plain
// pointers, and a peer's death shows in its pidfd.
#pragma once
#include "transport/transport.h"

namespace shardcomm {

Status probe_shm(Device device);
Result<std::unique_ptr<Transport>> open_shm(Device device, const Options& options);

}  // namespace shardcomm
