#include "messages/transfer_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

#include "base/processor.h"
#include "kernels/kernels.h"

namespace shardcomm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSlice{20};  // a rank that waits looks at its peers and its deadline this often
constexpr uint64_t kReady = 1;                   // acknowledgements of a ticket: the receiver is ready for pieces
constexpr uint64_t kRead = 2;                    // the receiver has all of it

size_t index(Rank rank) noexcept { return static_cast<size_t>(rank); }

}  // namespace

TransferGroup::TransferGroup(Messages& messages, std::span<const Transfer> transfers)
    : messages_(messages),
      fabric_(messages.fabric_),
      mailbox_(*messages.fabric_.mailbox),
      transfers_(transfers),
      many_(transfers.size() > kOnStack ? transfers.size() : 0),
      states_(transfers.size() > kOnStack ? std::span(many_) : std::span(few_).first(transfers.size())),
      unfinished_(transfers.size()) {
  if (transfers.size() > 1) find_order();
}

// Pieces may come yet, after a failure; the memory that they were for does not outlive this.
TransferGroup::~TransferGroup() {
  if (unfinished_ == 0) return;
  for (size_t i = 0; i < transfers_.size(); ++i) {
    const MessageCall& call = transfers_[i].call;
    if (!call.is_send && states_[i].stage == Stage::kPieces)
      messages_.inboxes_[index(call.peer)].forget_fragments(states_[i].ticket);
  }
}

// Sends to one peer are posted in order, and receives with one tag meet their messages in order.
void TransferGroup::find_order() {
  std::map<std::tuple<bool, Rank, int32_t>, int32_t> last;
  for (size_t i = 0; i < transfers_.size(); ++i) {
    const MessageCall& call = transfers_[i].call;
    const auto place = last.try_emplace({call.is_send, call.peer, call.is_send ? 0 : call.tag}, -1).first;
    states_[i].after = std::exchange(place->second, static_cast<int32_t>(i));
  }
}

bool TransferGroup::may_begin(const State& state) const noexcept {
  return state.after < 0 || states_[static_cast<size_t>(state.after)].stage != Stage::kBegin;
}

Status TransferGroup::run(TimeLimit& limit) {
  constexpr int kPolls = 64;  // before anything looks at the clock: about as long as a small message takes
  for (int poll = 0; poll < kPolls; ++poll) {
    if (advance()) return failure_;
    pause();
  }
  const std::function<bool()> ready = [this] { return is_ready(); };
  while (!advance()) {
    const Deadline look = std::min(limit.deadline(), Clock::now() + kSlice);
    if (mailbox_.wait_until(ready, look)) break;
    SHARDCOMM_TRY(check(limit));
  }
  return failure_;
}

// A peer may need room in this rank's mailbox before it comes to what this rank waits for.
bool TransferGroup::is_ready() {
  constexpr int kFewLooks = 32;
  if (advance()) return true;
  if (looks_ < kFewLooks) {
    ++looks_;
    return false;
  }
  for (Rank peer = 0; peer < fabric_.size; ++peer) messages_.inboxes_[index(peer)].drain();
  return false;
}

bool TransferGroup::advance() {
  for (size_t i = 0; i < transfers_.size() && failure_.ok(); ++i) {
    State& state = states_[i];
    if (state.stage == Stage::kFinished) continue;
    const Transfer& transfer = transfers_[i];
    failure_ = transfer.call.is_send ? advance_send(transfer, state) : advance_receive(transfer, state);
  }
  return unfinished_ == 0 || !failure_.ok();
}

Status TransferGroup::advance_send(const Transfer& send, State& state) {
  const Rank peer = send.call.peer;
  if (state.stage == Stage::kBegin) return may_begin(state) ? post(send, state) : Status();
  const uint64_t answers = mailbox_.acknowledgements(peer, state.ticket) - state.acknowledged;
  if (state.stage == Stage::kPosted && state.is_staged && answers >= kReady) state.stage = Stage::kPieces;
  if (state.stage == Stage::kPieces) post_pieces(send, state);
  if (answers < kRead) return {};
  messages_.tickets_[index(peer)].fetch_and(~(uint64_t{1} << state.ticket), std::memory_order_release);
  finish(send, state);
  return {};
}

// Leaves the send as it is where the peer's mailbox is full or all tickets are in use.
Status TransferGroup::post(const Transfer& send, State& state) {
  const MessageCall& call = send.call;
  Envelope envelope{
      .tag = call.tag, .kind = EnvelopeKind::kEager, .dtype = call.dtype, .ticket = 0, .count = call.count};
  SourceLookup windows(*fabric_.windows);
  const bool is_small = send.bytes() <= kBufferedBytes;
  const MappedWindow* const window = is_small ? nullptr : windows.window_of(send.data, send.bytes());
  const bool is_mapped = window != nullptr || fabric_.transport->same_process(call.peer);
  if (is_small || (!is_mapped && send.bytes() <= kMailPayloadBytes)) {
    if (mailbox_.try_post(call.peer, envelope, {send.data, send.bytes()})) finish(send, state);
    return {};
  }
  std::atomic<uint64_t>& tickets = messages_.tickets_[index(call.peer)];
  uint64_t used = tickets.load(std::memory_order_relaxed);
  do {
    if (used == UINT64_MAX) return {};
    state.ticket = static_cast<uint16_t>(std::countr_one(used));
  } while (!tickets.compare_exchange_weak(used, used | uint64_t{1} << state.ticket, std::memory_order_acquire));
  state.acknowledged = mailbox_.acknowledgements(call.peer, state.ticket);

  state.is_staged = !is_mapped && !fabric_.attaches(/*reduction=*/false);
  envelope.kind = state.is_staged ? EnvelopeKind::kStaged : EnvelopeKind::kDirect;
  envelope.ticket = state.ticket;
  const SourceEntry source{.address = reinterpret_cast<uint64_t>(send.data),
                           .window = window == nullptr ? kNoWindow : window->id,
                           .staged = state.is_staged ? 1U : 0U};
  if (mailbox_.try_post(call.peer, envelope, std::as_bytes(std::span(&source, 1)))) {
    state.stage = Stage::kPosted;
  } else {
    tickets.fetch_and(~(uint64_t{1} << state.ticket), std::memory_order_release);
  }
  return {};
}

void TransferGroup::post_pieces(const Transfer& send, State& state) {
  while (state.sent_bytes < send.bytes()) {
    const size_t bytes = std::min(kMailPayloadBytes, send.bytes() - state.sent_bytes);
    const Envelope envelope{.tag = send.call.tag,
                            .kind = EnvelopeKind::kFragment,
                            .dtype = DType::kU8,
                            .ticket = state.ticket,
                            .count = bytes};
    if (!mailbox_.try_post(send.call.peer, envelope, {send.data + state.sent_bytes, bytes})) return;
    state.sent_bytes += bytes;
  }
}

Status TransferGroup::advance_receive(const Transfer& receive, State& state) {
  Inbox& inbox = messages_.inboxes_[index(receive.call.peer)];
  if (state.stage == Stage::kBegin) {
    if (!may_begin(state)) return {};
    const auto found = inbox.find(receive);
    return found ? meet(receive, state, *found) : Status();
  }
  inbox.drain();
  if (inbox.missing_bytes(state.ticket) != 0) return {};
  mailbox_.acknowledge(receive.call.peer, state.ticket, kRead - kReady);
  finish(receive, state);
  return {};
}

Status TransferGroup::meet(const Transfer& receive, State& state, const Inbox::Found& found) {
  const Envelope& envelope = found.envelope;
  const Rank peer = receive.call.peer;
  if (envelope.dtype != receive.call.dtype || envelope.count != receive.call.count) {
    const MessageCall sent{
        .is_send = true, .dtype = envelope.dtype, .peer = fabric_.rank, .tag = envelope.tag, .count = envelope.count};
    return Status(Code::kFailedPrecondition, fmt::format("rank {} {}; rank {} {}", peer, text(sent, ""), fabric_.rank,
                                                         text(receive.call, receive.label)))
        .context("matching sends and receives");
  }
  state.ticket = envelope.ticket;
  switch (envelope.kind) {
    case EnvelopeKind::kEager: break;
    case EnvelopeKind::kDirect:
      SHARDCOMM_TRY(copy(receive, found.source));
      mailbox_.acknowledge(peer, envelope.ticket, kRead);
      break;
    case EnvelopeKind::kStaged:
      messages_.inboxes_[index(peer)].expect_fragments(envelope.ticket, receive.data, receive.bytes());
      mailbox_.acknowledge(peer, envelope.ticket, kReady);
      state.stage = Stage::kPieces;
      return {};
    case EnvelopeKind::kFragment: return Status(Code::kInternal, "a piece of a message came as one of its own");
  }
  finish(receive, state);
  return {};
}

Status TransferGroup::copy(const Transfer& receive, const SourceEntry& source) {
  SourceLookup windows(*fabric_.windows);
  const std::byte* const mapped = windows.locate(receive.call.peer, source);
  if (mapped == nullptr) {
    if (fabric_.attach == Attach::kNever) SHARDCOMM_TRY(fabric_.windows->why_not(receive.call.peer));
    return fabric_.read(receive.call.peer, receive.data, source.address, receive.bytes());
  }
  const kernels::CopyLaunch launch{.target = receive.data, .source = mapped, .bytes = receive.bytes()};
  return kernels::launch(launch, StreamRef::caller());
}

void TransferGroup::finish(const Transfer& transfer, State& state) noexcept {
  state.stage = Stage::kFinished;
  --unfinished_;
  auto& bytes = transfer.call.is_send ? messages_.bytes_sent_ : messages_.bytes_received_;
  bytes.fetch_add(transfer.bytes(), std::memory_order_relaxed);
  messages_.count_.fetch_add(1, std::memory_order_relaxed);
}

// Ok means: go on waiting.
Status TransferGroup::check(TimeLimit& limit) {
  SHARDCOMM_TRY(fabric_.control->failure());
  for (size_t i = 0; i < transfers_.size(); ++i) {
    if (states_[i].stage == Stage::kFinished || !mailbox_.has_left(transfers_[i].call.peer)) continue;
    if (advance()) return failure_;  // by what it had posted before it left
    if (states_[i].stage == Stage::kFinished) continue;
    return Status(Code::kPeerLost, fmt::format("rank {}: rank {} left the communicator; {}", fabric_.rank,
                                               transfers_[i].call.peer, late_text()));
  }
  SHARDCOMM_TRY(fabric_.control->check_peers());
  return Clock::now() < limit.deadline()
             ? Status()
             : Status(Code::kTimedOut, fmt::format("rank {}: {}", fabric_.rank, late_text()));
}

// "recv f32 1024 from rank 0 tag 3: no such message has come; send f32 5 tag 7 waits for its receive"
std::string TransferGroup::late_text() {
  const auto late = std::ranges::find_if(states_, [](const State& state) { return state.stage != Stage::kFinished; });
  const Transfer& transfer = transfers_[static_cast<size_t>(late - states_.begin())];
  std::string message = text(transfer.call, transfer.label);
  if (transfer.call.is_send) {
    const bool is_posted = late->stage != Stage::kBegin;
    message += is_posted ? ": has not been received" : ": the peer takes nothing out of its mailbox, which is full";
  } else {
    message += late->stage == Stage::kBegin ? ": no such message has come" : ": pieces of it are missing";
    const std::string waiting = messages_.inboxes_[index(transfer.call.peer)].waiting_text();
    if (!waiting.empty()) message += fmt::format("; without a receive so far: {}", waiting);
  }
  if (unfinished_ > 1) message += fmt::format(" (and {} more of this call)", unfinished_ - 1);
  return message;
}

}  // namespace shardcomm
