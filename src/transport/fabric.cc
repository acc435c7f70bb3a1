// Connecting a fabric, and the announcements with which every operation begins.
#include <fmt/format.h>

#include <algorithm>
#include <new>

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

}  // namespace

Result<Fabric::Offer> Fabric::prepare(std::unique_ptr<MappedTransport> transport, Rank rank, int size,
                                      const Options& options) {
  const size_t bytes = staging_offset(size) + kStagingSlots * slot_bytes(options, size);
  SHARDCOMM_TRY_ASSIGN(Segment control, Segment::create(bytes, fmt::format("control block of rank {}", rank)));
  auto* block = new (control.data()) ControlBlock;  // members without initialisers: the pages stay zero
  block->layout = kControlLayout;
  block->rank = rank;
  block->size = size;
  SHARDCOMM_TRY_ASSIGN(Card transport_card, transport->card());
  SHARDCOMM_TRY_ASSIGN(Card control_card, transport->share(control));
  return Offer{std::move(transport),      std::move(control),     rank, size,
               std::move(transport_card), std::move(control_card)};
}

Result<std::unique_ptr<Fabric>> Fabric::connect(Offer& offer, std::span<const Card> transport_cards,
                                                std::span<const Card> control_cards, const Options& options,
                                                Deadline deadline) {
  SHARDCOMM_TRY(offer.transport->connect(offer.rank, transport_cards, deadline));
  SHARDCOMM_TRY_ASSIGN(auto mapping, offer.transport->map(control_cards));
  std::unique_ptr<Fabric> fabric(new Fabric);
  fabric->rank_ = offer.rank;
  fabric->size_ = offer.size;
  fabric->all_same_process_ = true;
  for (Rank r = 0; r < offer.size; ++r) {
    auto* block = std::launder(reinterpret_cast<ControlBlock*>(mapping.by_rank[static_cast<size_t>(r)]));
    if (block->layout != kControlLayout || block->rank != r || block->size != offer.size) {
      return Status(Code::kFailedPrecondition,
                    fmt::format("rank {} has control block layout {}, rank {}, size {}; rank {} expects {}, {}, {}", r,
                                block->layout, block->rank, block->size, offer.rank, kControlLayout, r, offer.size));
    }
    fabric->blocks_.push_back(block);
    fabric->same_process_.push_back(offer.transport->same_process(r) ? 1 : 0);
    fabric->all_same_process_ = fabric->all_same_process_ && fabric->same_process_.back() != 0;
  }
  fabric->transport_ = std::move(offer.transport);
  fabric->control_ = std::move(offer.control);
  fabric->control_mapping_ = std::move(mapping);
  fabric->spin_ = options.spin;
  fabric->slot_bytes_ = slot_bytes(options, offer.size);
  fabric->consumed_base_.resize(static_cast<size_t>(offer.size));
  fabric->consumed_now_.resize(static_cast<size_t>(offer.size));
  return fabric;
}

Fabric::~Fabric() {
  if (blocks_.empty() || !birthplace_.is_here()) return;  // a forked child does not leave for its parent
  own().progress.departed.store(1, std::memory_order_release);
  ring_all_bells();
}

Status Fabric::can_attach_all() const {
  for (Rank r = 0; r < size_; ++r) {
    if (transport_->same_process(r)) continue;
    SHARDCOMM_TRY(transport_->can_attach(r));
  }
  return {};
}

void Fabric::take_back_next() const noexcept {
  constexpr size_t kLine = 64, kMostLines = 16;  // about as many as a core fetches at the same time
  const auto* message = reinterpret_cast<const std::byte*>(&own().messages[(sequence_ + 1) & 1]);
  const size_t end = std::min(offsetof(Message, payload) + payload_bytes_, kMostLines * kLine);
  for (size_t line = 0; line < end; line += kLine) fetch_to_write(message + line);
}

std::span<std::byte> Fabric::payload() noexcept {
  Message& message = own().messages[(sequence_ + 1) & 1];
  return {message.payload, sizeof message.payload};
}

void Fabric::announce(const Signature& signature, uint8_t phase, size_t payload_bytes,
                      const OperationName& name) noexcept {
  ++sequence_;
  Message& message = own().messages[sequence_ & 1];
  Note& note = own().notes[sequence_ & 1];
  note.epoch = name.epoch;
  const size_t label_bytes = std::min(name.label.size(), kLabelBytes - 1);
  std::copy_n(name.label.data(), label_bytes, note.label);
  note.label[label_bytes] = '\0';
  announced_ = signature;
  announced_.phase = phase;
  message.payload_bytes = static_cast<uint32_t>(payload_bytes);
  payload_bytes_ = payload_bytes;
  message.signature = signature;
  message.signature.phase = phase;
  raise(message.sequence, sequence_);
}

Status Fabric::collect(TimeLimit& limit) {
  bool agreed = true;
  for (int step = 1; step < size_; ++step) {
    const Rank peer = (rank_ + step) % size_;
    Message& message = block(peer).messages[sequence_ & 1];
    SHARDCOMM_TRY(wait(message.sequence, sequence_, peer, limit));
    agreed = agreed && message.signature == announced_;
  }
  take_back_next();
  return agreed ? Status() : disagreement();
}

std::span<const std::byte> Fabric::payload_of(Rank peer) const noexcept {
  const Message& message = block(peer).messages[sequence_ & 1];
  return {message.payload, message.payload_bytes};
}

const Signature& Fabric::signature_of(Rank peer) const noexcept {
  return block(peer).messages[sequence_ & 1].signature;
}

void Fabric::finish_reading() noexcept { raise(own().done, sequence_); }

Status Fabric::await_readers(TimeLimit& limit) {
  for (int step = 1; step < size_; ++step) {
    const Rank peer = (rank_ + step) % size_;
    SHARDCOMM_TRY(wait(block(peer).done, sequence_, peer, limit));
  }
  return {};
}

}  // namespace shardcomm
