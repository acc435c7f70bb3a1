// How ranks become a communicator: agree on version and options, show each other their cards, connect, and agree that
// all of them could.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/pod.h"
#include "core/blob.h"
#include "core/connection.h"
#include "core/locality.h"

namespace shardcomm {
namespace {

Result<MachineModel> machine_model(const Options& options) {
  if (options.tune_file.empty()) return MachineModel();
  std::ifstream file(options.tune_file);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.good()) return Status(Code::kUnavailable, fmt::format("tune_file '{}' cannot be read", options.tune_file));
  Result<MachineModel> model = MachineModel::parse(text);
  return model.ok() ? model : model.status().context(fmt::format("reading tune_file '{}'", options.tune_file));
}

// Whatever changes the protocol between ranks, or what they choose, must be equal on all of them.
std::string protocol_text(const Options& options, const Result<MachineModel>& machine) {
  return fmt::format(
      "version {} control_layout {} transports {} chunk_bytes {} staging_bytes {} memory_access {} algorithm '{}' "
      "machine {}",
      SHARDCOMM_VERSION, kControlLayout, options.transports, options.chunk_bytes, options.staging_bytes,
      options.memory_access, options.algorithm,
      machine.ok() ? machine.value().to_json() : machine.status().to_string());
}

// Threads of this rank that move the bytes of a large operation: its share of the cores, as far as it may run on them.
int count_copy_threads(const Options& options, const std::string& own_cores, const Topology& topology, int most) {
  constexpr int kMost = 8;  // more than the memory of one socket has use for, in most machines
  if (options.copy_threads != 0) return static_cast<int>(options.copy_threads);
  const int share = std::min(count_cores({&own_cores, 1}), topology.cores_per_node / topology.world_size);
  return std::clamp(share, 1, most == 0 ? kMost : std::min(most, kMost));
}

// The cards carry random tokens, so their hash is the same on these ranks and on no others.
uint64_t identity_of(std::span<const std::string> cards) {
  WordHash hash;
  for (const std::string& card : cards) hash.add(card);
  return hash.value();
}

// A mask of the rows by which peers' memory is mapped.
uint8_t mapped_rows(std::span<const TransportEntry> entries) {
  unsigned rows = 0;
  for (size_t row = 0; row < entries.size(); ++row) {
    if (entries[row].kind == TransportKind::kMapped) rows |= 1U << row;
  }
  return static_cast<uint8_t>(rows);
}

// A fabric spans ranks that all map each other; a pair that is served otherwise needs a fabric between nodes.
Status check_pairs(const PairTransports& pairs, std::span<const TransportEntry> entries, int size) {
  for (Rank a = 0; a < size; ++a) {
    for (Rank b = a + 1; b < size; ++b) {
      const int row = pairs.row(a, b);
      if (row != PairTransports::kNone && entries[static_cast<size_t>(row)].kind == TransportKind::kMapped) continue;
      return Status(Code::kUnavailable,
                    fmt::format("no transport maps the memory of ranks {} and {} into each other", a, b));
    }
  }
  return {};
}

struct OpenTransport {
  size_t row;  // of the list that it was chosen from
  std::unique_ptr<Transport> transport;
};

// The first that this rank allows and can use.
Result<OpenTransport> open_transport(std::span<const TransportEntry> entries, Device device, const Options& options) {
  if (device.kind != Device::Kind::kHost)
    return Status(Code::kUnsupported, "built without CUDA: the device must be the host");
  SHARDCOMM_CHECK(entries.size() <= kMostTransportRows, "more transports than a report has bits for");
  std::string reasons;
  for (size_t row = 0; row < entries.size(); ++row) {
    const TransportEntry& entry = entries[row];
    const std::string listed = "," + options.transports + ",";
    if (options.transports != "auto" && listed.find(fmt::format(",{},", entry.name)) == std::string::npos) continue;
    const Status usable = entry.probe(device);
    if (usable.ok()) {
      SHARDCOMM_TRY_ASSIGN(auto transport, entry.open(device, options));
      return OpenTransport{row, std::move(transport)};
    }
    reasons += fmt::format("; {}: {}", entry.name, usable.message());
  }
  std::string known;
  for (const TransportEntry& entry : entries) known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
  return Status(Code::kUnavailable,
                fmt::format("no usable transport in '{}' (built in: {}){}", options.transports, known, reasons));
}

// What this rank measured, as bytes; empty where the machine model has both figures, or nobody asks. Both are measured
// where one is missing: only what was measured in one way compares.
std::string measured_access(const Options& options, const MachineModel& machine, int size) {
  const bool known = machine.attach_gbs && machine.staged_gbs;
  if (known || size == 1 || options.memory_access != "auto") return {};
  return std::string(as_bytes(access_speed()));
}

// In place of the model's own figures, the mean of what the ranks measured.
void use_measured(MachineModel& machine, std::span<const std::string> speeds) {
  AccessSpeed sum;
  for (const std::string& bytes : speeds) {
    const std::optional<AccessSpeed> measured = from_bytes<AccessSpeed>(bytes);
    if (!measured) return;
    sum.attach_gbs += measured->attach_gbs;
    sum.staged_gbs += measured->staged_gbs;
  }
  machine.attach_gbs = sum.attach_gbs / static_cast<double>(speeds.size());
  machine.staged_gbs = sum.staged_gbs / static_cast<double>(speeds.size());
}

// Ranks that see other machines, in containers of their own, may come to other domains: that bears on speed, not on the
// protocol.
std::vector<Rank> find_reading_order(Rank me, std::span<const std::string> cores) {
  std::vector<Rank> order = reading_order(me, domains_of(cores));
  log(Level::kDebug, "rank {}: reads its peers in the order {}", me, fmt::join(order, ","));
  return order;
}

// This rank's side of the meeting, before it knows its peers.
struct Prepared {
  std::optional<FabricOffer> offer;
  size_t row = 0;    // of its transport
  std::string blob;  // status, transport card, control card, usable cores, measured access
};

Prepared prepare(Communicator::Group self, const Options& options, const MachineModel& machine,
                 std::span<const TransportEntry> entries) {
  Prepared mine;
  const auto attempt = [&]() -> Status {
    SHARDCOMM_TRY_ASSIGN(OpenTransport open, open_transport(entries, self.device, options));
    mine.row = open.row;
    SHARDCOMM_TRY_ASSIGN(mine.offer, offer_fabric(std::move(open.transport), self.rank, self.size, options));
    return {};
  };
  if (const Status status = attempt(); !status.ok()) {
    mine.blob = pack({pack_status(status), "", "", "", ""});
  } else {
    mine.blob = pack({pack_status({}), mine.offer->transport_card, mine.offer->control_card, usable_cores(),
                      measured_access(options, machine, self.size)});
  }
  return mine;
}

// Each copying thread attaches a part of what is large; a staging ring is filled by one thread.
void use_copy_threads(MachineModel& machine, int fewest) {
  if (machine.attach_gbs) *machine.attach_gbs *= fewest;
}

// A rank's report once it has connected.
struct Report {
  Status ready;
  Status attach;  // whether it can attach all others
  int copy_threads = 1;
  Reach reach;  // by peer
};

// The reports of all ranks, taken together.
struct Agreed {
  Status attach;
  int fewest_copy_threads;
  PairTransports pairs;
};

// The last exchange; the first failure to connect is that of all ranks.
Result<Agreed> agree(const Exchange& exchange, const Report& mine) {
  const std::string reach(mine.reach.begin(), mine.reach.end());
  SHARDCOMM_TRY_ASSIGN(const auto blobs, exchange("connected", pack({pack_status(mine.ready), pack_status(mine.attach),
                                                                     as_bytes(mine.copy_threads), reach})));
  std::vector<std::string> connects, attaches;
  std::vector<Reach> reach_by_rank;
  int fewest = mine.copy_threads;
  for (const std::string& blob : blobs) {
    SHARDCOMM_TRY_ASSIGN(auto fields, unpack(blob, 4));
    connects.push_back(std::move(fields[0]));
    attaches.push_back(std::move(fields[1]));
    fewest = std::min(fewest, from_bytes<int>(fields[2]).value_or(1));
    reach_by_rank.emplace_back(fields[3].begin(), fields[3].end());
    reach_by_rank.back().resize(blobs.size());
  }
  SHARDCOMM_TRY(first_failure(connects));
  return Agreed{first_failure(attaches), fewest, PairTransports(std::move(reach_by_rank))};
}

// Decides for all ranks alike, from what they have told each other. A reduction copies what it attaches and reads the
// copy. Staging does the same without pinning pages, so a reduction stages, unless the pieces would be so small that
// signals dominate.
Attach agree_on_attach(const Status& all_can, const Options& options, const MachineModel& machine,
                       const Fabric& fabric) {
  constexpr size_t kSmallPiece = 8 << 10;
  const std::string_view access = options.memory_access;
  if (access == "staging") return Attach::kNever;
  if (!all_can.ok()) {
    const Level level = access != "auto" && fabric.rank == 0 ? Level::kWarn : Level::kDebug;
    log(level, "rank {}: ordinary memory goes through the staging ring: {}", fabric.rank, all_can.message());
    return Attach::kNever;
  }
  if (access == "attach_gathers") return Attach::kGathers;
  if (fabric.staging == nullptr) return Attach::kGathersAndReductions;
  const bool small_pieces = fabric.staging->slot_bytes() / static_cast<size_t>(fabric.size) < kSmallPiece;
  if (access == "attach" || small_pieces) return Attach::kGathersAndReductions;
  if (!machine.attach_gbs || !machine.staged_gbs) return Attach::kGathers;  // one rank, which reads nobody's
  log(Level::kDebug, "rank {}: cross-memory attach reads {:.1f} GB/s, the staging ring {:.1f} GB/s", fabric.rank,
      *machine.attach_gbs, *machine.staged_gbs);
  return *machine.attach_gbs >= *machine.staged_gbs ? Attach::kGathers : Attach::kNever;
}

}  // namespace

Result<Connection> connect_ranks(Communicator::Group self, const Options& options, Deadline deadline,
                                 const Meeting& meeting) {
  const Exchange& exchange = meeting.exchange;
  Result<MachineModel> machine = machine_model(options);
  SHARDCOMM_TRY_ASSIGN(const auto protocols, exchange("protocol", protocol_text(options, machine)));
  for (size_t r = 1; r < protocols.size(); ++r) {
    if (protocols[r] == protocols[0]) continue;
    return Status(Code::kFailedPrecondition,
                  fmt::format("ranks differ in version or options: rank 0 has {}; rank {} has {}", protocols[0], r,
                              protocols[r]));
  }
  SHARDCOMM_TRY(machine.status());  // all ranks have the same

  Prepared mine = prepare(self, options, machine.value(), meeting.transports);
  SHARDCOMM_TRY_ASSIGN(const auto blobs, exchange("cards", mine.blob));
  std::vector<std::string> statuses, transport_cards, control_cards, cores, speeds;
  for (const std::string& blob : blobs) {
    SHARDCOMM_TRY_ASSIGN(auto fields, unpack(blob, 5));
    statuses.push_back(std::move(fields[0]));
    transport_cards.push_back(std::move(fields[1]));
    control_cards.push_back(std::move(fields[2]));
    cores.push_back(std::move(fields[3]));
    speeds.push_back(std::move(fields[4]));
  }
  SHARDCOMM_TRY(first_failure(statuses));
  use_measured(machine.value(), speeds);
  Topology topology = Topology::single_node(self.size, count_cores(cores));

  Report report;
  std::unique_ptr<Fabric> fabric;
  std::unique_ptr<FlightRecorder> flight;
  const auto connect = [&]() -> Status {
    for (const Status& reached : mine.offer->transport->connect(self.rank, transport_cards, deadline)) {
      report.reach.push_back(static_cast<uint8_t>(reached.ok() ? 1U << mine.row : 0U));
      if (report.ready.ok()) report.ready = reached;
    }
    SHARDCOMM_TRY(report.ready);
    const bool oversubscribed = self.size > topology.cores_per_node;
    SHARDCOMM_TRY_ASSIGN(fabric, connect_fabric(*mine.offer, control_cards, options, oversubscribed));
    report.attach = fabric->can_attach_all();
    SHARDCOMM_TRY_ASSIGN(
        flight,
        FlightRecorder::create(
            {.job = meeting.job, .communicator = identity_of(control_cards), .rank = self.rank, .size = self.size},
            options));
    return {};
  };
  report.ready = connect();
  report.copy_threads =
      count_copy_threads(options, cores[static_cast<size_t>(self.rank)], topology, meeting.most_copy_threads);
  SHARDCOMM_TRY_ASSIGN(const Agreed agreed, agree(exchange, report));

  SHARDCOMM_TRY(check_pairs(agreed.pairs, meeting.transports, self.size));
  topology.node_of = agreed.pairs.nodes(mapped_rows(meeting.transports));
  use_copy_threads(machine.value(), agreed.fewest_copy_threads);
  SHARDCOMM_TRY_ASSIGN(Chooser chooser,
                       Chooser::create({topology, machine.value()}, fabric->transport->kind(), options.algorithm));
  fabric->attach = agree_on_attach(agreed.attach, options, machine.value(), *fabric);
  fabric->shared->close_fd();  // every peer has mapped what it needs
  return Connection{.fabric = std::move(fabric),
                    .topology = std::move(topology),
                    .chooser = std::move(chooser),
                    .flight = std::move(flight),
                    .copy_threads = report.copy_threads,
                    .reading_order = find_reading_order(self.rank, cores)};
}

}  // namespace shardcomm
