// Order, execution and failure of operations.
#include "core/core.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "base/futex.h"

namespace shardcomm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kDefaultAttachChunk = size_t{64}
                                       << 10;  // a piece of each source stays in the L2 cache while it is combined
constexpr size_t kChunkAlign = 64;

int usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

SourceKind ordinary_memory(const Fabric& fabric) {
  return fabric.attach() ? SourceKind::kAttached : SourceKind::kStaged;
}

}  // namespace

Status Turnstile::enter(uint64_t epoch, Deadline deadline) noexcept {
  while (passed() + 1 < epoch) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = bell_.load(std::memory_order_seq_cst);
    if (passed_.load(std::memory_order_seq_cst) + 1 < epoch) futex_wait(&bell_, seen, deadline);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    if (passed() + 1 < epoch && Clock::now() >= deadline) {
      return Status(Code::kTimedOut, fmt::format("op {} waited for op {} on another stream", epoch, passed() + 1));
    }
  }
  return {};
}

void Turnstile::leave(uint64_t epoch) noexcept {
  // An operation that gave up waiting for its turn leaves before those it waited for.
  uint64_t passed = passed_.load(std::memory_order_relaxed);
  while (passed < epoch && !passed_.compare_exchange_weak(passed, epoch, std::memory_order_seq_cst)) {
  }
  bell_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) futex_wake(&bell_, kWakeAll);
}

Core::Core(Communicator::Group group, const Options& given, std::shared_ptr<Fabric> connected)
    : self(group),
      options(given),
      topology(Topology::single_node(group.size, usable_cores())),
      fabric(std::move(connected)),
      attach_chunk_bytes_(given.chunk_bytes == 0
                              ? kDefaultAttachChunk
                              : std::max(kChunkAlign, given.chunk_bytes / kChunkAlign * kChunkAlign)) {}

// One operation at a time, in order; after a failure none. A failure here is a failure of the communicator.
template <class Body>
Status Core::in_turn(uint64_t epoch, std::string_view what, Body&& body) {
  const Deadline deadline = Clock::now() + options.timeout;
  Status status = turnstile.enter(epoch, deadline);
  if (status.ok()) status = fabric->failure();
  if (status.ok()) {
    fabric->mark_started(epoch);
    status = body(deadline);
    fabric->mark_finished(epoch);
  }
  if (!status.ok() && fabric->failure().ok()) fabric->abort(status);
  operations_.fetch_add(1, std::memory_order_relaxed);
  turnstile.leave(epoch);
  if (status.ok()) return status;
  return status.context(fmt::format("rank {} runs op {} {}", self.rank, epoch, what));
}

Status Core::run(Operation& operation) {
  return in_turn(operation.epoch, name(operation.collective), [&](Deadline deadline) {
    operation.deadline = deadline;
    TrafficCounters traffic;
    Execution execution{*fabric, operation, traffic, attach_chunk_bytes_};
    const Algorithm& algorithm = select(workload_of(operation, self.size, ordinary_memory(*fabric)), topology);
    Status status = algorithm.run(execution);
    bytes_sent_.fetch_add(traffic.bytes_sent, std::memory_order_relaxed);
    bytes_received_.fetch_add(traffic.bytes_received, std::memory_order_relaxed);
    return status;
  });
}

// What an operation needs while it waits in a stream.
struct AsyncOperation {
  AsyncOperation(std::shared_ptr<Core> owner, const Operation& given)
      : core(std::move(owner)),
        items(given.items.begin(), given.items.end()),
        counts(given.counts.begin(), given.counts.end()),
        label(given.label),
        operation(given),
        work(std::make_shared<Work::State>(core->self.rank, name(given.collective).data(), Deadline::max())) {
    operation.items = items;
    operation.counts = counts;
    operation.label = label;
  }
  void run() {
    work->set_deadline(Clock::now() + core->options.timeout);
    work->finish(core->run(operation));
  }
  std::shared_ptr<Core> core;
  std::vector<Item> items;
  std::vector<size_t> counts;
  std::string label;
  Operation operation;
  std::shared_ptr<Work::State> work;
};

Result<Work> Core::submit(Operation operation, StreamRef stream) {
  if (stream.device().kind != Device::Kind::kHost) {
    return Status(Code::kUnsupported, "this communicator is on host memory; its operations run on host streams");
  }
  SHARDCOMM_TRY(fabric->failure());
  operation.epoch = next_epoch;
  if (stream.is_caller()) {
    ++next_epoch;
    SHARDCOMM_TRY(run(operation));
    return Work(operation.epoch, nullptr);
  }
  auto async = std::make_shared<AsyncOperation>(shared_from_this(), operation);
  SHARDCOMM_TRY(stream.enqueue([async] { async->run(); }));  // a full queue takes no epoch
  ++next_epoch;
  return Work(operation.epoch, async->work);
}

Result<std::vector<std::string>> Core::exchange(std::string_view blob, std::string_view label) {
  if (blob.size() > sizeof(Message::payload))
    return Status(Code::kInvalidArgument, fmt::format("{} bytes are too many to exchange", blob.size()));
  std::vector<std::string> blobs;
  const uint64_t epoch = next_epoch++;
  SHARDCOMM_TRY(in_turn(epoch, label, [&](Deadline deadline) -> Status {
    std::copy(blob.begin(), blob.end(), reinterpret_cast<char*>(fabric->payload().data()));
    Signature signature{};
    signature.collective = static_cast<uint8_t>(Collective::kBarrier);
    for (const char c : label) signature.detail = signature.detail * 131 + static_cast<unsigned char>(c);
    signature.phase = 1;
    fabric->announce(signature, blob.size(), {epoch, label});
    SHARDCOMM_TRY(fabric->collect(deadline));
    for (Rank r = 0; r < self.size; ++r) {
      const auto payload = fabric->payload_of(r);
      blobs.emplace_back(reinterpret_cast<const char*>(payload.data()), payload.size());
    }
    return {};
  }));
  return blobs;
}

Status Core::health() const {
  SHARDCOMM_TRY(fabric->failure());
  return fabric->check_peers();
}

TrafficCounters Core::traffic() const noexcept {
  return {operations_.load(std::memory_order_relaxed), bytes_sent_.load(std::memory_order_relaxed),
          bytes_received_.load(std::memory_order_relaxed)};
}

}  // namespace shardcomm
