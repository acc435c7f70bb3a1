// Every call passes here: it gets its epoch, is recorded, and is handed over.
#include "core/core.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"

namespace shardcomm {
namespace {

// Keeps the sum of now and a timeout within the clock's range.
constexpr std::chrono::hours kLongestTimeout{366 * 24};

Status check_timeout(std::chrono::milliseconds timeout) {
  if (timeout >= std::chrono::milliseconds::zero()) return {};
  return Status(Code::kInvalidArgument, fmt::format("a timeout of {} ms is negative", timeout.count()));
}

std::chrono::milliseconds limited(std::chrono::milliseconds timeout) noexcept {
  return std::min<std::chrono::milliseconds>(timeout, kLongestTimeout);
}

}  // namespace

Core::Core(Communicator::Group group, const Options& given, Connection connection)
    : self(group),
      options(given),
      topology(std::move(connection.topology)),
      fabric(std::move(connection.fabric)),
      flight(std::move(connection.flight)),
      health(*fabric->control, *flight, group.rank),
      chooser(std::move(connection.chooser)),
      timeout_ms_(limited(options.timeout).count()),
      messages_(*fabric),
      host_executor_({.chunk_bytes = options.chunk_bytes,
                      .copy_threads = connection.copy_threads,
                      .reading_order = std::move(connection.reading_order),
                      .fabric = *fabric,
                      .chooser = chooser,
                      .flight = *flight,
                      .health = health}) {}

Result<Work> Core::submit(Operation& operation, StreamRef stream) {
  if (stream.device().kind != Device::Kind::kHost) {
    return Status(Code::kUnsupported, "this communicator is on host memory; its operations run on host streams");
  }
  SHARDCOMM_TRY(health.here());
  SHARDCOMM_TRY(health.failure());
  if (operation.prepared == nullptr) prepare(operation, self.size);
  SHARDCOMM_TRY(resolve(operation.timeout));
  return stream.is_caller() ? run(operation) : enqueue(operation, stream);
}

// Zero becomes the communicator's timeout.
Status Core::resolve(std::chrono::milliseconds& timeout) const {
  if (timeout > timeout.zero()) {
    timeout = limited(timeout);
    return {};
  }
  SHARDCOMM_TRY(check_timeout(timeout));
  timeout = this->timeout();
  return {};
}

inline Core::Taken Core::take_epoch(const Call& call, std::string_view label) noexcept {
  const uint64_t now = flight->now();  // before the lock, which would make the counter wait
  const CallOrder::Place place(call_order_);
  const Taken taken{.epoch = next_epoch_++, .now = now};
  flight->enqueue(taken.epoch, call, label, taken.now);
  return taken;
}

inline Result<Work> Core::run(Operation& operation) {
  const Taken taken = take_epoch(operation.signature.call, operation.label);
  operation.epoch = taken.epoch;
  SHARDCOMM_TRY(host_executor_.run(operation, taken.now));
  return Work(operation.epoch, nullptr);
}

// A stream runs its operations in the order in which they were put into it, so epochs are taken in that order too.
Result<Work> Core::enqueue(const Operation& operation, StreamRef stream) {
  HostExecutor::Queued queued = host_executor_.prepare(operation, shared_from_this());
  const CallOrder::Place place(call_order_);
  const uint64_t epoch = next_epoch_, now = flight->now();
  SHARDCOMM_TRY_ASSIGN(Work work, host_executor_.enqueue(std::move(queued), epoch, stream));
  ++next_epoch_;
  flight->enqueue(epoch, operation.signature.call, operation.label, now);
  return work;
}

Status Core::set_timeout(std::chrono::milliseconds timeout) {
  SHARDCOMM_TRY(check_timeout(timeout));
  const auto wanted = timeout == std::chrono::milliseconds::zero() ? options.timeout : timeout;
  timeout_ms_.store(limited(wanted).count(), std::memory_order_relaxed);
  return {};
}

namespace {

Item item_of(const GatherItem& given) noexcept {
  return {static_cast<const std::byte*>(given.shard), static_cast<std::byte*>(given.full), given.count, given.dtype,
          ReduceOp::kSum};
}
Item item_of(const ReduceItem& given) noexcept {
  return {static_cast<const std::byte*>(given.full),
          static_cast<std::byte*>(given.shard),
          given.count,
          given.dtype,
          given.op,
          given.scale};
}

template <class Given>
std::vector<Item> items_of(std::span<const Given> given) {
  std::vector<Item> items;
  items.reserve(given.size());
  for (const Given& item : given) items.push_back(item_of(item));
  return items;
}

}  // namespace

template <class Given>
Result<Work> Core::submit_many(Collective collective, std::span<const Given> given, StreamRef stream,
                               std::string_view label, std::chrono::milliseconds timeout) {
  const std::vector<Item> items = items_of(given);
  Operation operation({.collective = collective}, items, kept_label(label));
  operation.timeout = timeout;
  SHARDCOMM_TRY(check(operation, self.rank, self.size));
  return submit(operation, stream);
}

template <class Given>
Result<std::shared_ptr<PreparedOperation>> Core::prepare_many(Collective collective, std::span<const Given> given,
                                                              std::string_view label) const {
  auto prepared = std::make_shared<PreparedOperation>(collective, items_of(given), kept_label(label));
  SHARDCOMM_TRY(check(prepared->operation, self.rank, self.size));
  prepare(prepared->operation, self.size);
  return prepared;
}

template Result<Work> Core::submit_many(Collective, std::span<const GatherItem>, StreamRef, std::string_view,
                                        std::chrono::milliseconds);
template Result<Work> Core::submit_many(Collective, std::span<const ReduceItem>, StreamRef, std::string_view,
                                        std::chrono::milliseconds);
template Result<std::shared_ptr<PreparedOperation>> Core::prepare_many(Collective, std::span<const GatherItem>,
                                                                       std::string_view) const;
template Result<std::shared_ptr<PreparedOperation>> Core::prepare_many(Collective, std::span<const ReduceItem>,
                                                                       std::string_view) const;

Result<std::vector<std::string>> Core::exchange(std::string_view blob, std::string_view label) {
  if (blob.size() > kPayloadCapacity)
    return Status(Code::kInvalidArgument, fmt::format("{} bytes are too many to exchange", blob.size()));
  SHARDCOMM_TRY(health.here());
  const Signature signature{.call = {.kind = CallKind::kAgreement}, .detail = hash_text(label)};
  const uint64_t epoch = take_epoch(signature.call, label).epoch;
  std::vector<std::string> blobs;
  const auto body = [&](TimeLimit& limit) -> Status {
    Control& control = *fabric->control;
    std::ranges::copy(std::as_bytes(std::span(blob)), control.payload().begin());
    control.announce({.signature = signature, .payload_bytes = blob.size(), .epoch = epoch, .label = label});
    SHARDCOMM_TRY(control.collect(limit));
    for (Rank r = 0; r < self.size; ++r) {
      const auto payload = control.payload_of(r);
      blobs.emplace_back(reinterpret_cast<const char*>(payload.data()), payload.size());
    }
    return {};
  };
  SHARDCOMM_TRY(host_executor_.run({.epoch = epoch, .label = label, .timeout = timeout(), .body = body}));
  return blobs;
}

}  // namespace shardcomm
