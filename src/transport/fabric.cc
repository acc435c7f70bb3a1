#include <fmt/format.h>

#include <algorithm>

#include "transport/mapped_control.h"
#include "transport/mapped_mailbox.h"
#include "transport/transport.h"

namespace shardcomm {
namespace {

constexpr size_t kMinimumSlotBytes = 4096;
constexpr size_t kLeastPartBytes = 64;

// A part of at least one element for every rank.
size_t slot_bytes(const Options& options, int size) {
  const size_t parts = static_cast<size_t>(size) * kLeastPartBytes;
  return std::max({kMinimumSlotBytes, parts, options.staging_bytes / kStagingSlots / 64 * 64});
}

// In the segment of each rank: its control block, its staging ring, its mail, its directory.
size_t mail_offset(const Options& options, int size) {
  constexpr size_t kPage = 4096;
  const size_t end = MappedControl::bytes_for(size) + kStagingSlots * slot_bytes(options, size);
  return (end + kPage - 1) / kPage * kPage;
}
size_t directory_offset(const Options& options, int size) {
  return (mail_offset(options, size) + MappedMailbox::bytes_for(size) + 63) / 64 * 64;
}

}  // namespace

Result<PeerMapping> MappedTransport::map(std::span<const Card> shared_by_rank) {
  PeerMapping mapping;
  for (Rank r = 0; r < static_cast<Rank>(shared_by_rank.size()); ++r) {
    Result<MappedMemory> memory = map_from(r, shared_by_rank[static_cast<size_t>(r)]);
    if (!memory.ok()) return memory.status().context(fmt::format("mapping memory of rank {}", r));
    mapping.by_rank.push_back(memory->base);
    mapping.keep_alive.push_back(std::move(memory->keep_alive));
  }
  return mapping;
}

Status Fabric::can_attach_all() const {
  for (Rank r = 0; r < size; ++r) {
    if (transport->same_process(r)) continue;
    SHARDCOMM_TRY(transport->can_attach(r));
  }
  return {};
}

Status Fabric::read(Rank peer, void* target, uint64_t address, size_t bytes) const {
  const Status status = transport->read(peer, target, address, bytes);
  if (status.ok()) return status;
  // A peer that failed first may have ended since: the reason of its failure is the cause.
  SHARDCOMM_TRY(control->failure());
  SHARDCOMM_TRY(control->check_peers());
  return status;
}

Result<FabricOffer> offer_fabric(std::unique_ptr<Transport> transport, Rank rank, int size, const Options& options) {
  if (transport->kind() != TransportKind::kMapped) {
    return Status(Code::kUnsupported, fmt::format("transport {} cannot map the memory of peers, which the ranks of a "
                                                  "node need",
                                                  transport->name()));
  }
  std::unique_ptr<MappedTransport> mapped(static_cast<MappedTransport*>(transport.release()));
  const size_t bytes = directory_offset(options, size) + SegmentDirectory::kBytes;
  SHARDCOMM_TRY_ASSIGN(Segment shared, Segment::create(bytes, fmt::format("control block of rank {}", rank)));
  MappedControl::format(shared.data(), rank, size);
  SHARDCOMM_TRY_ASSIGN(Card transport_card, mapped->card());
  SHARDCOMM_TRY_ASSIGN(Card control_card, mapped->share(shared.allocation()));
  return FabricOffer{.rank = rank,
                     .size = size,
                     .transport = std::move(mapped),
                     .shared = std::move(shared),
                     .transport_card = std::move(transport_card),
                     .control_card = std::move(control_card)};
}

Result<std::unique_ptr<Fabric>> connect_fabric(FabricOffer& offer, std::span<const Card> control_cards,
                                               const Options& options, bool oversubscribed) {
  SHARDCOMM_TRY_ASSIGN(PeerMapping blocks, offer.transport->map(control_cards));
  PeerMapping tables = blocks;
  for (std::byte*& table : tables.by_rank) table += directory_offset(options, offer.size);
  SHARDCOMM_TRY_ASSIGN(auto control, MappedControl::create({.rank = offer.rank,
                                                            .size = offer.size,
                                                            .spin = options.spin,
                                                            .oversubscribed = oversubscribed,
                                                            .transport = *offer.transport},
                                                           std::move(blocks)));
  std::vector<uint8_t> same_process;
  for (Rank r = 0; r < offer.size; ++r) same_process.push_back(offer.transport->same_process(r) ? 1 : 0);
  auto fabric = std::make_unique<Fabric>();
  fabric->rank = offer.rank;
  fabric->size = offer.size;
  fabric->transport = std::move(offer.transport);
  fabric->shared = std::move(offer.shared);
  fabric->windows = std::make_unique<Windows>(
      std::move(same_process), std::make_unique<SegmentDirectory>(offer.rank, *fabric->transport, std::move(tables)));
  fabric->staging = std::make_unique<StagingRing>(*control, slot_bytes(options, offer.size));
  fabric->mailbox = std::make_unique<MappedMailbox>(*control, mail_offset(options, offer.size));
  fabric->control = std::move(control);
  return fabric;
}

}  // namespace shardcomm
