// How ranks become a communicator: agree on version and options, show each other their cards, connect, and agree that
// all of them could.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/log.h"
#include "core/core.h"
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
int count_channels(const Options& options, const std::string& own_cores, const Topology& topology, int most) {
  constexpr int kMost = 8;  // more than the memory of one socket has use for, in most machines
  if (options.channels != 0) return static_cast<int>(options.channels);
  const int share = std::min(count_cores({&own_cores, 1}), topology.cores_per_node / topology.world_size);
  return std::clamp(share, 1, most == 0 ? kMost : std::min(most, kMost));
}

// FNV-1a of the cards, which carry random tokens: the same on these ranks, and nowhere else.
uint64_t identity_of(std::span<const std::string> cards) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::string& card : cards) {
    for (const char c : card) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

Result<std::unique_ptr<MappedTransport>> open_transport(Device device, const Options& options) {
  if (device.kind != Device::Kind::kHost)
    return Status(Code::kUnsupported, "built without CUDA: the device must be the host");
  std::string reasons;
  for (const TransportEntry& entry : transports()) {
    const std::string listed = "," + options.transports + ",";
    if (options.transports != "auto" && listed.find(fmt::format(",{},", entry.name)) == std::string::npos) continue;
    const Status usable = entry.probe(device);
    if (usable.ok()) return entry.open(device, options);
    reasons += fmt::format("; {}: {}", entry.name, usable.message());
  }
  std::string known;
  for (const TransportEntry& entry : transports()) known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
  return Status(Code::kUnavailable,
                fmt::format("no usable transport in '{}' (built in: {}){}", options.transports, known, reasons));
}

// What this rank measured, as bytes; empty where the machine model has both figures, or nobody asks. Both are measured
// where one is missing: only what was measured in one way compares.
std::string measured_access(const Options& options, const MachineModel& machine, int size) {
  const bool known = machine.attach_gbs && machine.staged_gbs;
  if (known || size == 1 || options.memory_access != "auto") return {};
  const AccessSpeed speed = access_speed();
  return {reinterpret_cast<const char*>(&speed), sizeof speed};
}

// In place of the model's own figures, the mean of what the ranks measured.
void use_measured(MachineModel& machine, std::span<const std::string> speeds) {
  AccessSpeed sum;
  for (const std::string& bytes : speeds) {
    AccessSpeed one;
    if (bytes.size() != sizeof one) return;
    std::memcpy(&one, bytes.data(), sizeof one);
    sum.attach_gbs += one.attach_gbs;
    sum.staged_gbs += one.staged_gbs;
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

struct Prepared {
  std::optional<Fabric::Offer> offer;
  std::string blob;  // status, transport card, control card, usable cores, measured access
};

Prepared prepare(Communicator::Group self, const Options& options, const MachineModel& machine) {
  const auto attempt = [&]() -> Result<Fabric::Offer> {
    SHARDCOMM_TRY_ASSIGN(auto transport, open_transport(self.device, options));
    return Fabric::prepare(std::move(transport), self.rank, self.size, options);
  };
  Result<Fabric::Offer> offer = attempt();
  if (!offer.ok()) return {std::nullopt, pack({pack_status(offer.status()), "", "", "", ""})};
  std::string blob = pack({pack_status({}), offer->transport_card, offer->control_card, usable_cores(),
                           measured_access(options, machine, self.size)});
  return {std::move(offer).value(), std::move(blob)};
}

// Each channel attaches a part of what is large; a staging ring is filled by one thread.
void use_channels(MachineModel& machine, int fewest) {
  if (machine.attach_gbs) *machine.attach_gbs *= fewest;
}

// Of all ranks, once each has connected.
struct Readiness {
  Status attach;  // whether all can attach
  int fewest_channels;
};

// The last exchange; the first failure to connect is everybody's.
Result<Readiness> confirm(const Exchange& exchange, const Status& ready, const Status& attach, int channels) {
  const std::string_view bytes(reinterpret_cast<const char*>(&channels), sizeof channels);
  SHARDCOMM_TRY_ASSIGN(const auto blobs, exchange("connected", pack({pack_status(ready), pack_status(attach), bytes})));
  std::vector<std::string> connects, attaches;
  Readiness all{{}, channels};
  for (const std::string& blob : blobs) {
    SHARDCOMM_TRY_ASSIGN(auto fields, unpack(blob, 3));
    connects.push_back(std::move(fields[0]));
    attaches.push_back(std::move(fields[1]));
    int theirs = 1;
    if (fields[2].size() == sizeof theirs) std::memcpy(&theirs, fields[2].data(), sizeof theirs);
    all.fewest_channels = std::min(all.fewest_channels, theirs);
  }
  SHARDCOMM_TRY(first_failure(connects));
  all.attach = first_failure(attaches);
  return all;
}

// What all ranks do, by what they have told each other. A reduction copies what it attaches and then reads the copy:
// that is what staging does, less the pinning of pages, so it stages unless that would be in crumbs, each with signals.
Attach agree_on_attach(const Status& all_can, const Options& options, const MachineModel& machine,
                       const Fabric& fabric) {
  constexpr size_t kCrumb = 8 << 10;
  const std::string_view access = options.memory_access;
  if (access == "staging") return Attach::kNever;
  if (!all_can.ok()) {
    const Level level = access != "auto" && fabric.rank() == 0 ? Level::kWarn : Level::kDebug;
    log(level, "rank {}: ordinary memory goes through the staging ring: {}", fabric.rank(), all_can.message());
    return Attach::kNever;
  }
  if (access == "attach_gathers") return Attach::kGathers;
  const bool crumbs = fabric.staging_slot_bytes() / static_cast<size_t>(fabric.size()) < kCrumb;
  if (access == "attach" || crumbs) return Attach::kGathersAndReductions;
  if (!machine.attach_gbs || !machine.staged_gbs) return Attach::kGathers;  // one rank, which reads nobody's
  log(Level::kDebug, "rank {}: cross-memory attach reads {:.1f} GB/s, the staging ring {:.1f} GB/s", fabric.rank(),
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

  Prepared mine = prepare(self, options, machine.value());
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

  Result<std::unique_ptr<Fabric>> connected =
      Fabric::connect(*mine.offer, transport_cards, control_cards, options, deadline);
  Result<std::unique_ptr<FlightRecorder>> flight =
      FlightRecorder::create({meeting.job, identity_of(control_cards), self.rank, self.size}, options);
  const Status ready = connected.ok() ? flight.status() : connected.status();
  const Status attach = connected.ok() ? connected.value()->can_attach_all() : Status();
  const int channels = count_channels(options, cores[static_cast<size_t>(self.rank)], topology, meeting.most_channels);
  SHARDCOMM_TRY_ASSIGN(const Readiness all, confirm(exchange, ready, attach, channels));
  use_channels(machine.value(), all.fewest_channels);
  SHARDCOMM_TRY_ASSIGN(Chooser chooser, Chooser::create({topology, machine.value()}, options.algorithm));
  std::shared_ptr<Fabric> fabric = std::move(connected).value();
  fabric->set_attach(agree_on_attach(all.attach, options, machine.value(), *fabric));
  fabric->set_oversubscribed(self.size > topology.cores_per_node);
  fabric->release_cards();  // every peer has mapped what it needs
  return Connection{std::move(fabric),  std::move(topology),
                    std::move(chooser), std::move(flight).value(),
                    channels,           find_reading_order(self.rank, cores)};
}

}  // namespace shardcomm
