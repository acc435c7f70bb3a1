#include "messages/inbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace shardcomm {
namespace {

// Bytes of the payload that mean something.
size_t payload_bytes(const Envelope& envelope) noexcept {
  switch (envelope.kind) {
    case EnvelopeKind::kEager: return envelope.count * size_of(envelope.dtype);
    case EnvelopeKind::kDirect: return sizeof(SourceEntry);
    case EnvelopeKind::kFragment: return envelope.count;
    case EnvelopeKind::kStaged: break;
  }
  return 0;
}

bool fits(const Envelope& envelope, const Transfer& receive) noexcept {
  return envelope.dtype == receive.call.dtype && envelope.count == receive.call.count;
}

Inbox::Found deliver(const Envelope& envelope, const std::byte* payload, const Transfer& receive) noexcept {
  Inbox::Found found{.envelope = envelope, .source = {}};
  if (envelope.kind == EnvelopeKind::kDirect) std::memcpy(&found.source, payload, sizeof found.source);
  const bool is_here = envelope.kind == EnvelopeKind::kEager && envelope.count != 0;
  if (is_here && fits(envelope, receive)) std::memcpy(receive.data, payload, payload_bytes(envelope));
  return found;
}

}  // namespace

std::optional<Inbox::Found> Inbox::find(const Transfer& receive) {
  if (!may_find()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto wanted = [&](const Waiting& message) { return message.envelope.tag == receive.call.tag; };
  if (const auto place = std::ranges::find_if(waiting_, wanted); place != waiting_.end()) {
    const Found found = deliver(place->envelope, place->payload.data(), receive);
    waiting_.erase(place);
    waiting_count_.store(waiting_.size(), std::memory_order_relaxed);
    return found;
  }
  while (const auto incoming = mailbox_->peek(peer_)) {
    if (take_fragment(*incoming)) continue;
    if (incoming->envelope.tag == receive.call.tag) {
      const Found found = deliver(incoming->envelope, incoming->payload.data(), receive);
      mailbox_->pop(peer_);
      return found;
    }
    keep(*incoming);
  }
  return std::nullopt;
}

void Inbox::drain() {
  if (!mailbox_->has_mail(peer_)) return;
  const std::lock_guard lock(mutex_);
  while (const auto incoming = mailbox_->peek(peer_)) {
    if (!take_fragment(*incoming)) keep(*incoming);
  }
}

bool Inbox::take_fragment(const Mailbox::Incoming& incoming) noexcept {
  if (incoming.envelope.kind != EnvelopeKind::kFragment) return false;
  Fragments& message = fragments_[incoming.envelope.ticket % kMailTickets];
  const size_t bytes = std::min<size_t>(incoming.envelope.count, message.missing_bytes);
  if (bytes != 0) std::memcpy(message.target, incoming.payload.data(), bytes);
  message.target += bytes;
  message.missing_bytes -= bytes;
  mailbox_->pop(peer_);
  return true;
}

void Inbox::keep(const Mailbox::Incoming& incoming) {
  const size_t bytes = std::min(payload_bytes(incoming.envelope), kMailPayloadBytes);
  waiting_.push_back({incoming.envelope, {incoming.payload.begin(), incoming.payload.begin() + bytes}});
  waiting_count_.store(waiting_.size(), std::memory_order_seq_cst);  // before the pop that wakes its receiver
  mailbox_->pop(peer_);
}

void Inbox::expect_fragments(uint16_t ticket, std::byte* target, size_t bytes) {
  const std::lock_guard lock(mutex_);
  fragments_[ticket % kMailTickets] = {.target = target, .missing_bytes = bytes};
}

size_t Inbox::missing_bytes(uint16_t ticket) {
  const std::lock_guard lock(mutex_);
  return fragments_[ticket % kMailTickets].missing_bytes;
}

void Inbox::forget_fragments(uint16_t ticket) noexcept {
  const std::lock_guard lock(mutex_);
  fragments_[ticket % kMailTickets] = {};
}

std::string Inbox::waiting_text() {
  constexpr size_t kMostNamed = 4;
  const std::lock_guard lock(mutex_);
  std::string text;
  size_t named = 0;
  for (const Waiting& message : waiting_) {
    if (named++ == kMostNamed) break;
    fmt::format_to(std::back_inserter(text), "{}send {} {} tag {}", text.empty() ? "" : ", ",
                   name(message.envelope.dtype), message.envelope.count, message.envelope.tag);
  }
  if (waiting_.size() > kMostNamed)
    fmt::format_to(std::back_inserter(text), ", and {} more", waiting_.size() - kMostNamed);
  return text;
}

}  // namespace shardcomm
