// Sends and receives of a communicator: checks, records, the thread that they run on, and what their failure does.
#include <fmt/format.h>

#include <algorithm>

#include "bootstrap/bootstrap.h"
#include "core/core.h"

namespace shardcomm {
namespace {

Status check(const Transfer& transfer, int size) {
  const MessageCall& call = transfer.call;
  const auto invalid = [](std::string text) { return Status(Code::kInvalidArgument, std::move(text)); };
  if (call.peer < 0 || call.peer >= size)
    return invalid(fmt::format("peer {} is out of range: the group has {} ranks", call.peer, size));
  if (call.tag < 0) return invalid(fmt::format("tag {} is negative", call.tag));
  size_t bytes = 0;
  if (!is_valid(call.dtype))
    return invalid(fmt::format("dtype {} is none of 0 to {}", static_cast<int>(call.dtype), kDTypeCount - 1));
  if (__builtin_mul_overflow(call.count, size_of(call.dtype), &bytes) || bytes > PTRDIFF_MAX)
    return invalid("count is beyond the address space");
  if (bytes == 0) return {};
  if (transfer.data == nullptr) return invalid("data is null");
  const bool is_aligned = (reinterpret_cast<uintptr_t>(transfer.data) & (align_of(call.dtype) - 1)) == 0;
  return is_aligned ? Status() : invalid(fmt::format("data is not aligned to its {} elements", name(call.dtype)));
}

// Two receives of one call into the same bytes, or a receive into what is sent, would race.
Status check_apart(std::span<const Transfer> transfers) {
  struct Extent {
    const std::byte *begin, *end;
    bool is_written;
  };
  std::vector<Extent> extents;
  for (const Transfer& transfer : transfers) {
    if (transfer.bytes() == 0) continue;
    extents.push_back({transfer.data, transfer.data + transfer.bytes(), !transfer.call.is_send});
  }
  std::ranges::sort(extents, {}, &Extent::begin);
  const std::byte *written_end = nullptr, *read_end = nullptr;
  for (const Extent& extent : extents) {
    const bool overlaps = extent.begin < written_end || (extent.is_written && extent.begin < read_end);
    if (overlaps) return Status(Code::kInvalidArgument, "what is received overlaps another message of the same call");
    auto& end = extent.is_written ? written_end : read_end;
    end = std::max(end, extent.end);
  }
  return {};
}

Transfer transfer_of(bool is_send, Rank peer, int32_t tag, std::byte* data, size_t bytes) {
  return {.call = {.is_send = is_send, .dtype = DType::kU8, .peer = peer, .tag = tag, .count = bytes},
          .data = data,
          .label = {}};
}

// Sends and receives that wait in a stream, with all that they need.
struct AsyncTransfers {
  AsyncTransfers() = default;
  AsyncTransfers(const AsyncTransfers&) = delete;
  AsyncTransfers& operator=(const AsyncTransfers&) = delete;
  // A stream that goes with its queue takes a side of messages away, which the other side waits for.
  ~AsyncTransfers() {
    if (core == nullptr || work->done()) return;
    const Status status(Code::kAborted, fmt::format("rank {}: the stream of {} was destroyed before it ran",
                                                    core->self.rank, text(transfers[0].call, transfers[0].label)));
    core->health.abort(status);
    work->finish(status);
  }
  std::shared_ptr<Core> core;  // once they are in the stream
  std::vector<Transfer> transfers;
  std::vector<std::string> labels;
  std::vector<uint64_t> records;
  std::shared_ptr<Work::State> work;
};

}  // namespace

Result<Work> Core::submit(std::span<const Transfer> transfers, StreamRef stream, std::chrono::milliseconds timeout) {
  if (stream.device().kind != Device::Kind::kHost) {
    return Status(Code::kUnsupported, "this communicator is on host memory; its operations run on host streams");
  }
  if (fabric->mailbox == nullptr) {
    return Status(Code::kUnsupported,
                  fmt::format("transport {} carries no messages between two ranks", fabric->transport->name()));
  }
  for (size_t i = 0; i < transfers.size(); ++i) {
    Status checked = check(transfers[i], self.size);
    if (!checked.ok()) return transfers.size() > 1 ? checked.context(fmt::format("checking message {}", i)) : checked;
  }
  if (transfers.size() > 1) SHARDCOMM_TRY(check_apart(transfers));
  SHARDCOMM_TRY(health.here());
  SHARDCOMM_TRY(health.failure());
  SHARDCOMM_TRY(resolve(timeout));
  if (transfers.size() == 1 && stream.is_caller()) {
    const uint64_t record = flight->enqueue(transfers[0].call, transfers[0].label, /*starts=*/true);
    SHARDCOMM_TRY(run(transfers, {&record, 1}, timeout));
    return Work(0, nullptr);
  }
  std::vector<uint64_t> records;
  records.reserve(transfers.size());
  for (const Transfer& transfer : transfers)
    records.push_back(flight->enqueue(transfer.call, transfer.label, stream.is_caller()));
  if (stream.is_caller()) {
    SHARDCOMM_TRY(run(transfers, records, timeout));
    return Work(0, nullptr);
  }
  auto async = std::make_shared<AsyncTransfers>();
  async->transfers.assign(transfers.begin(), transfers.end());
  async->records = std::move(records);
  async->labels.reserve(transfers.size());
  for (Transfer& transfer : async->transfers) transfer.label = async->labels.emplace_back(transfer.label);
  async->work = std::make_shared<Work::State>(self.rank, "send_recv", Deadline::max());
  transfers_in_streams_.fetch_add(1, std::memory_order_relaxed);
  async->core = shared_from_this();
  Status queued = stream.enqueue([async, timeout] {
    const std::shared_ptr<Core>& core = async->core;
    async->work->set_deadline(std::chrono::steady_clock::now() + timeout);
    for (const uint64_t record : async->records) core->flight->start_message(record);
    Status status = core->run(async->transfers, async->records, timeout);
    core->transfers_in_streams_.fetch_sub(1, std::memory_order_relaxed);
    async->work->finish(std::move(status));
  });
  if (!queued.ok()) {
    transfers_in_streams_.fetch_sub(1, std::memory_order_relaxed);
    async->core = nullptr;
    for (const uint64_t record : async->records) flight->finish_message(record, queued.code());
    return queued;
  }
  return Work(0, async->work);
}

Status Core::run(std::span<const Transfer> transfers, std::span<const uint64_t> records,
                 std::chrono::nanoseconds timeout) {
  TimeLimit limit(timeout);
  // What waited in a stream may run after the communicator has failed.
  Status status = fabric->control->failure();
  if (status.ok()) status = messages_.run(transfers, limit);
  for (const uint64_t record : records) flight->finish_message(record, status.code());
  if (status.ok()) return status;
  health.abort(status);
  if (Status first = health.failure(); !first.ok()) status = std::move(first);
  const std::string what = transfers.size() == 1 ? text(transfers[0].call, transfers[0].label)
                                                 : fmt::format("send_recv_many of {} messages", transfers.size());
  return status.context(fmt::format("rank {} runs {}", self.rank, what));
}

bool Core::is_idle() const noexcept {
  return host_executor_.is_idle(next_epoch_) && transfers_in_streams_.load(std::memory_order_relaxed) == 0;
}

TrafficCounters Core::traffic() const noexcept {
  TrafficCounters traffic = host_executor_.traffic();
  traffic.operations += messages_.count();
  traffic.bytes_sent += messages_.bytes_sent();
  traffic.bytes_received += messages_.bytes_received();
  return traffic;
}

// The first of the ranks gathers all blobs and gives them back; each travels as its length, then its bytes.
Result<std::vector<std::string>> Core::exchange_among(std::span<const Rank> ranks, std::string_view blob, int32_t tag,
                                                      Deadline deadline) {
  SHARDCOMM_TRY(health.here());
  SHARDCOMM_TRY(health.failure());
  TimeLimit limit(deadline - std::chrono::steady_clock::now());
  const Rank first = ranks.front();
  const auto send = [&](Rank peer, std::string text) -> Status {
    uint64_t bytes = text.size();
    const Transfer both[] = {transfer_of(true, peer, tag, reinterpret_cast<std::byte*>(&bytes), sizeof bytes),
                             transfer_of(true, peer, tag, reinterpret_cast<std::byte*>(text.data()), bytes)};
    return messages_.run(both, limit);
  };
  const auto receive = [&](Rank peer) -> Result<std::string> {
    constexpr uint64_t kMostBytes = uint64_t{1} << 30;
    uint64_t bytes = 0;
    const Transfer length = transfer_of(false, peer, tag, reinterpret_cast<std::byte*>(&bytes), sizeof bytes);
    SHARDCOMM_TRY(messages_.run({&length, 1}, limit));
    if (bytes > kMostBytes) return Status(Code::kInternal, fmt::format("rank {} sent a blob of {} bytes", peer, bytes));
    std::string text(bytes, '\0');
    const Transfer body = transfer_of(false, peer, tag, reinterpret_cast<std::byte*>(text.data()), bytes);
    SHARDCOMM_TRY(messages_.run({&body, 1}, limit));
    return text;
  };
  if (self.rank != first) {
    SHARDCOMM_TRY(send(first, std::string(blob)));
    SHARDCOMM_TRY_ASSIGN(const std::string all, receive(first));
    auto blobs = bootstrap::unpack(all);
    if (!blobs) return Status(Code::kFailedPrecondition, fmt::format("rank {} sent blobs that are damaged", first));
    return std::move(*blobs);
  }
  std::vector<std::string> blobs{std::string(blob)};
  for (const Rank peer : ranks.subspan(1)) {
    SHARDCOMM_TRY_ASSIGN(std::string text, receive(peer));
    blobs.push_back(std::move(text));
  }
  std::string all = bootstrap::pack(blobs);
  for (const Rank peer : ranks.subspan(1)) SHARDCOMM_TRY(send(peer, all));
  return blobs;
}

}  // namespace shardcomm
