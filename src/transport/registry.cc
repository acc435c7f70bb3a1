// The transports built in, in the order in which "auto" tries them.
#include <algorithm>

#include "base/transport_names.h"
#include "transport/shm/shm.h"
#include "transport/transport.h"

namespace shardcomm {
namespace {

constexpr TransportEntry kTransports[] = {
    {.name = "shm", .kind = TransportKind::kMapped, .probe = probe_shm, .open = open_shm},
};

constexpr bool is_known(const TransportEntry& entry) {
  return std::find(std::begin(kTransportNames), std::end(kTransportNames), entry.name) != std::end(kTransportNames);
}
static_assert(std::all_of(std::begin(kTransports), std::end(kTransports), is_known));
static_assert(std::size(kTransports) <= kMostTransportRows);

}  // namespace

std::span<const TransportEntry> transports() noexcept { return kTransports; }

}  // namespace shardcomm
