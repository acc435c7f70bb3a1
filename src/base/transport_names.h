// The names of transports, for the option `transports` and for the rows of transport/registry.cc, which compile only
// with names of this list. A build may lack some of them; discovery says which it has.
#pragma once
#include <string_view>

namespace shardcomm {

inline constexpr std::string_view kTransportNames[] = {"shm", "p2p", "ib", "ucx", "nccl"};

}  // namespace shardcomm
