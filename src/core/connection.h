// How ranks find each other and connect (discovery.cc), and what that gives.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/collectives.h"
#include "flight/flight.h"
#include "shardcomm/communicator.h"
#include "transport/transport.h"

namespace shardcomm {

struct Connection {
  std::shared_ptr<Fabric> fabric;
  Topology topology;
  Chooser chooser;
  std::unique_ptr<FlightRecorder> flight;
  int copy_threads = 1;  // of this rank
  std::vector<Rank> reading_order;
};

// Gives every member's blob, in rank order.
using Exchange = std::function<Result<std::vector<std::string>>(std::string_view step, std::string_view blob)>;
// connect_ranks exchanges so often, or less where it fails.
inline constexpr int kConnectExchanges = 3;

struct Meeting {
  Exchange exchange;
  uint64_t job = 0;           // of the communicator that is split
  int most_copy_threads = 0;  // 0: no limit; else that communicator's, whose ranks share the cores with these
  std::span<const TransportEntry> transports = shardcomm::transports();
};

// A failure on one rank is the same failure on all.
Result<Connection> connect_ranks(Communicator::Group self, const Options& options, Deadline deadline,
                                 const Meeting& meeting);

}  // namespace shardcomm
