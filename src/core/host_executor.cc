#include "core/host_executor.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardcomm {
namespace {

using Clock = std::chrono::steady_clock;

// A piece of each source stays in the L2 cache while it is combined.
constexpr size_t kDefaultAttachChunk = 64 << 10;
constexpr size_t kChunkAlign = 64;

size_t attach_chunk(size_t chunk_bytes) noexcept {
  if (chunk_bytes == 0) return kDefaultAttachChunk;
  return std::max(kChunkAlign, chunk_bytes / kChunkAlign * kChunkAlign);
}

HostExecutor::Setup with_attach_chunk(HostExecutor::Setup setup) {
  setup.chunk_bytes = attach_chunk(setup.chunk_bytes);
  return setup;
}

}  // namespace

HostExecutor::HostExecutor(Setup setup) : setup_(with_attach_chunk(std::move(setup))), team_(setup_.copy_threads) {}

// After a failure no operation begins. Inlined, like end(): the calls would be a twentieth of a small operation's time.
[[gnu::always_inline]] inline Status HostExecutor::begin(Turn& turn, uint64_t now) {
  const bool is_immediate = now != kNotNow && turnstile_.passed() + 1 == turn.epoch;
  SHARDCOMM_TRY(turnstile_.enter(turn.epoch, turn.limit, *setup_.fabric.control));
  if (!is_immediate) SHARDCOMM_TRY(setup_.fabric.control->failure());
  turn.has_begun = true;
  setup_.flight.start(turn.epoch, is_immediate ? now : setup_.flight.now());
  return {};
}

[[gnu::always_inline]] inline Status HostExecutor::end(Turn& turn, Status status) {
  if (turn.has_begun) {
    setup_.flight.finish(turn.epoch, status.code());
    setup_.fabric.control->progress(turn.epoch);
  }
  if (!status.ok()) setup_.health.abort(status);
  if (turn.has_begun) {
    count(turn.traffic);
    turnstile_.leave(turn.epoch);
  } else {
    turnstile_.give_up();
  }
  if (status.ok()) return status;
  return status.context(fmt::format("rank {} runs op {} {}", setup_.fabric.rank, turn.epoch, turn.name));
}

Status HostExecutor::run(const Operation& operation, uint64_t now) {
  Turn turn(operation.epoch, name(operation.call().collective), operation.timeout);
  Status status = begin(turn, now);
  if (status.ok()) {
    const Workload& workload = operation.workload;
    Execution execution{.operation = operation,
                        .fabric = setup_.fabric,
                        .stream = StreamRef::caller(),  // the thread that runs the operation is the stream's own
                        .team = team_,
                        .scratch = scratch_,
                        .reading_order = setup_.reading_order,
                        .attach_chunk_bytes = setup_.chunk_bytes,
                        .node_bytes = workload.whole_bytes * static_cast<size_t>(setup_.fabric.size),
                        .limit = turn.limit,
                        .traffic = turn.traffic};
    status = setup_.chooser.choose(workload).run(execution);
  }
  return end(turn, std::move(status));
}

Status HostExecutor::run(const Agreement& agreement) {
  Turn turn(agreement.epoch, agreement.label, agreement.timeout);
  Status status = begin(turn, kNotNow);
  if (status.ok()) status = agreement.body(turn.limit);
  return end(turn, std::move(status));
}

struct HostExecutor::AsyncOperation {
  AsyncOperation(HostExecutor& executor, std::shared_ptr<const void> owner, const Operation& given)
      : executor(executor),
        owner(std::move(owner)),
        items(given.prepared != nullptr ? std::vector<Item>() : std::vector(given.items.begin(), given.items.end())),
        counts(given.counts.begin(), given.counts.end()),
        out_counts(given.out_counts.begin(), given.out_counts.end()),
        label(given.label),
        operation(given),
        work(std::make_shared<Work::State>(executor.setup_.fabric.rank, name(given.call().collective).data(),
                                           Deadline::max())) {
    if (given.prepared == nullptr) operation.items = items;
    operation.counts = counts;
    operation.out_counts = out_counts;
    operation.label = label;
  }
  AsyncOperation(const AsyncOperation&) = delete;
  AsyncOperation& operator=(const AsyncOperation&) = delete;
  // A stream that goes with its queue leaves a gap in the order, which no later operation can pass.
  ~AsyncOperation() {
    if (operation.epoch == 0 || work->done()) return;
    const Status status(Code::kAborted,
                        fmt::format("rank {}: the stream of op {} {} was destroyed before it ran",
                                    executor.setup_.fabric.rank, operation.epoch, name(operation.call().collective)));
    executor.setup_.health.abort(status);
    work->finish(status);
  }
  void run() {
    work->set_deadline(Clock::now() + operation.timeout);
    work->finish(executor.run(operation, kNotNow));
  }
  HostExecutor& executor;
  const std::shared_ptr<const void> owner;
  const std::vector<Item> items;
  const std::vector<size_t> counts, out_counts;
  const std::string label;
  Operation operation;
  const std::shared_ptr<Work::State> work;
};

HostExecutor::Queued HostExecutor::prepare(const Operation& operation, std::shared_ptr<const void> owner) {
  return std::make_shared<AsyncOperation>(*this, std::move(owner), operation);
}

Result<Work> HostExecutor::enqueue(Queued queued, uint64_t epoch, StreamRef stream) {
  queued->operation.epoch = epoch;
  Status status = stream.enqueue([queued] { queued->run(); });
  if (status.ok()) return Work(epoch, queued->work);
  queued->operation.epoch = 0;
  return status;
}

void HostExecutor::count(const TrafficCounters& operation) noexcept {
  const auto add = [](std::atomic<uint64_t>& sum, uint64_t term) {
    sum.store(sum.load(std::memory_order_relaxed) + term, std::memory_order_relaxed);
  };
  add(operations_, operation.operations);
  add(bytes_sent_, operation.bytes_sent);
  add(bytes_received_, operation.bytes_received);
}

TrafficCounters HostExecutor::traffic() const noexcept {
  return {operations_.load(std::memory_order_relaxed), bytes_sent_.load(std::memory_order_relaxed),
          bytes_received_.load(std::memory_order_relaxed)};
}

}  // namespace shardcomm
