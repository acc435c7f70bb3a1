// How ranks become a communicator: agree on version and options, show each other their cards, connect, and agree that
// all of them could.
#include <fmt/format.h>

#include "core/core.h"

namespace shardcomm {
namespace {

// Whatever changes the protocol between ranks must be equal on all of them.
std::string protocol_text(const Options& options) {
  return fmt::format("version {} control_layout {} transports {} chunk_bytes {} staging_bytes {} memory_access {}",
                     SHARDCOMM_VERSION, kControlLayout, options.transports, options.chunk_bytes, options.staging_bytes,
                     options.memory_access);
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

struct Prepared {
  std::optional<Fabric::Offer> offer;
  std::string blob;  // status, transport card, control card
};

Prepared prepare(Communicator::Group self, const Options& options) {
  const auto attempt = [&]() -> Result<Fabric::Offer> {
    SHARDCOMM_TRY_ASSIGN(auto transport, open_transport(self.device, options));
    return Fabric::prepare(std::move(transport), self.rank, self.size, options);
  };
  Result<Fabric::Offer> offer = attempt();
  if (!offer.ok()) return {std::nullopt, pack({pack_status(offer.status()), "", ""})};
  std::string blob = pack({pack_status({}), offer->transport_card, offer->control_card});
  return {std::move(offer).value(), std::move(blob)};
}

// auto: attach where every rank can. attach: insist. staging: never.
Status attach_status(const Fabric& fabric, const Options& options) {
  if (options.memory_access == "staging") return Status(Code::kUnavailable, "staging was asked for");
  return fabric.can_attach_all();
}

}  // namespace

Result<std::shared_ptr<Fabric>> connect_fabric(Communicator::Group self, const Options& options, Deadline deadline,
                                               const Exchange& exchange) {
  SHARDCOMM_TRY_ASSIGN(const auto protocols, exchange("protocol", protocol_text(options)));
  for (size_t r = 1; r < protocols.size(); ++r) {
    if (protocols[r] == protocols[0]) continue;
    return Status(Code::kFailedPrecondition,
                  fmt::format("ranks differ in version or options: rank 0 has {}; rank {} has {}", protocols[0], r,
                              protocols[r]));
  }

  Prepared mine = prepare(self, options);
  SHARDCOMM_TRY_ASSIGN(const auto blobs, exchange("cards", mine.blob));
  std::vector<std::string> statuses, transport_cards, control_cards;
  for (const std::string& blob : blobs) {
    SHARDCOMM_TRY_ASSIGN(auto fields, unpack(blob, 3));
    statuses.push_back(std::move(fields[0]));
    transport_cards.push_back(std::move(fields[1]));
    control_cards.push_back(std::move(fields[2]));
  }
  SHARDCOMM_TRY(first_failure(statuses));

  Result<std::unique_ptr<Fabric>> connected =
      Fabric::connect(*std::move(mine.offer), transport_cards, control_cards, options, deadline);
  const Status attach = connected.ok() ? attach_status(*connected.value(), options) : Status();
  SHARDCOMM_TRY_ASSIGN(const auto results,
                       exchange("connected", pack({pack_status(connected.status()), pack_status(attach)})));
  std::vector<std::string> connects, attaches;
  for (const std::string& blob : results) {
    SHARDCOMM_TRY_ASSIGN(auto fields, unpack(blob, 2));
    connects.push_back(std::move(fields[0]));
    attaches.push_back(std::move(fields[1]));
  }
  SHARDCOMM_TRY(first_failure(connects));
  const Status all_attach = first_failure(attaches);
  if (!all_attach.ok() && options.memory_access == "attach")
    return all_attach.context("looking for cross-memory attach");

  std::shared_ptr<Fabric> fabric = std::move(connected).value();
  fabric->set_attach(all_attach.ok());
  fabric->release_cards();  // every peer has mapped what it needs
  return fabric;
}

}  // namespace shardcomm
