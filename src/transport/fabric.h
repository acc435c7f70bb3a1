// Part of the door transport/transport.h. A Fabric is what connects the ranks of one communicator: how they agree
// (control), how they find each other's bytes (windows), and how bytes move that are not mapped (staging, read).
// Collectives are written in these terms:
//
//   control->payload() ... announce()   show every peer what this rank does and where its bytes are
//   control->collect()                  wait until every rank has announced as often, and check that all agree
//   read / SourceLookup / staging       the peers' bytes
//   control->finish_reading(), await_reader()   hand the peers' memory back, and wait for one's own
//
// A fabric spans ranks that can map each other's memory, a node. Thread rule: that of its parts.
#pragma once
#include <memory>
#include <optional>
#include <span>

#include "transport/control.h"
#include "transport/mailbox.h"
#include "transport/staging_ring.h"
#include "transport/transport.h"
#include "transport/windows.h"

namespace shardcomm {

// Which ranks read ordinary memory by cross-memory attach; otherwise it goes through the staging ring. All ranks agree
// on it once, since the owner of the bytes decides whether to stage them.
enum class Attach : uint8_t { kNever, kGathers, kGathersAndReductions };

struct Fabric {
  Rank rank = 0;
  int size = 1;
  Attach attach = Attach::kNever;
  std::unique_ptr<MappedTransport> transport;
  std::optional<Segment> shared;  // control block and staging ring of this rank; none where they lie elsewhere
  std::unique_ptr<Control> control;
  std::unique_ptr<Windows> windows;
  std::unique_ptr<Mailbox> mailbox;      // null where this kind of fabric carries no messages between pairs
  std::unique_ptr<StagingRing> staging;  // null only where read() works on all memory, so that attach is not kNever

  bool attaches(bool reduction) const noexcept {
    return attach == Attach::kGathersAndReductions || (attach == Attach::kGathers && !reduction);
  }
  // Ok: read() works on ordinary memory of every rank.
  Status can_attach_all() const;
  // target[0, bytes) = memory of `peer` at its `address`. Where the peer is gone, the error is the failure that all
  // ranks report.
  Status read(Rank peer, void* target, uint64_t address, size_t bytes) const;
};

// This rank's half of a fabric, before the peers are known. Its cards are exchanged by whoever made it.
struct FabricOffer {
  Rank rank;
  int size;
  std::unique_ptr<MappedTransport> transport;
  Segment shared;
  Card transport_card, control_card;
};
// kUnsupported where the transport cannot map memory.
Result<FabricOffer> offer_fabric(std::unique_ptr<Transport> transport, Rank rank, int size, const Options& options);

// On failure `offer` stays as it is: keep it until all ranks know, since peers may be mapping what it offers.
// The offer's transport has reached every rank.
Result<std::unique_ptr<Fabric>> connect_fabric(FabricOffer& offer, std::span<const Card> control_cards,
                                               const Options& options, bool oversubscribed);

}  // namespace shardcomm
