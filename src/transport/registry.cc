// The transports built in, in the order in which "auto" tries them.
#include "transport/shm/shm.h"
#include "transport/transport.h"

namespace shardcomm {

std::span<const TransportEntry> transports() noexcept {
  static constexpr TransportEntry kTransports[] = {{"shm", probe_shm, open_shm}};
  return kTransports;
}

}  // namespace shardcomm
