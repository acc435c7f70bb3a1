#include "messages/messages.h"

#include "messages/inbox.h"
#include "messages/transfer_group.h"

namespace shardcomm {

Messages::Messages(Fabric& fabric)
    : fabric_(fabric),
      inboxes_(std::make_unique<Inbox[]>(static_cast<size_t>(fabric.size))),
      tickets_(std::make_unique<std::atomic<uint64_t>[]>(static_cast<size_t>(fabric.size))) {
  if (fabric.mailbox == nullptr) return;
  for (Rank peer = 0; peer < fabric.size; ++peer) inboxes_[static_cast<size_t>(peer)].open(*fabric.mailbox, peer);
}

Messages::~Messages() = default;

Status Messages::run(std::span<const Transfer> transfers, TimeLimit& limit) {
  return TransferGroup(*this, transfers).run(limit);
}

}  // namespace shardcomm
