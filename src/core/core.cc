// Order, execution and failure of operations.
#include "core/core.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/futex.h"

namespace shardcomm {
namespace {

using Clock = std::chrono::steady_clock;

// A piece of each source stays in the L2 cache while it is combined.
constexpr size_t kDefaultAttachChunk = 64 << 10;
constexpr size_t kChunkAlign = 64;
constexpr std::chrono::milliseconds kSleepSlice{20};  // who waits for its turn looks for an abort this often

FlightCall call_of(const Operation& operation) noexcept {
  const Signature& signature = operation.signature;
  return {signature.collective, signature.dtype, signature.op, signature.root, signature.count, operation.label};
}

}  // namespace

Status Turnstile::enter(uint64_t epoch, TimeLimit& limit, const Fabric& fabric) noexcept {
  if (passed() + 1 < epoch) SHARDCOMM_TRY(sleep(epoch, limit, fabric));
  begun_.store(epoch, std::memory_order_relaxed);
  return {};
}

Status Turnstile::sleep(uint64_t epoch, TimeLimit& limit, const Fabric& fabric) noexcept {
  while (passed() + 1 < epoch) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = bell_.load(std::memory_order_seq_cst);
    if (passed_.load(std::memory_order_seq_cst) + 1 < epoch) {
      futex_wait(&bell_, seen, std::min(limit.deadline(), Clock::now() + kSleepSlice));
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    if (passed() + 1 >= epoch) break;
    SHARDCOMM_TRY(fabric.failure());
    if (Clock::now() < limit.deadline()) continue;
    // An operation whose turn it is ends by its own limit, and knows what it waits for: that is the better story.
    if (begun_.load(std::memory_order_relaxed) <= passed()) {
      return Status(Code::kTimedOut,
                    fmt::format("op {} waited for op {}, to which its stream has not come", epoch, passed() + 1));
    }
    limit.renew();
  }
  limit.renew();  // its own time begins with its turn
  return {};
}

// Sequentially consistent: either a sleeper sees what has passed before it sleeps, or this sees the sleeper.
void Turnstile::leave(uint64_t epoch) noexcept {
  // An operation that gave up waiting for its turn leaves before those it waited for.
  uint64_t passed = passed_.load(std::memory_order_relaxed);
  while (passed < epoch && !passed_.compare_exchange_weak(passed, epoch, std::memory_order_seq_cst)) {
  }
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  bell_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(&bell_, kWakeAll);
}

Core::Core(Communicator::Group group, const Options& given, Connection connection)
    : self(group),
      options(given),
      topology(std::move(connection.topology)),
      fabric(std::move(connection.fabric)),
      chooser(std::move(connection.chooser)),
      flight(std::move(connection.flight)),
      attach_chunk_bytes_(given.chunk_bytes == 0
                              ? kDefaultAttachChunk
                              : std::max(kChunkAlign, given.chunk_bytes / kChunkAlign * kChunkAlign)),
      reading_order_(std::move(connection.reading_order)),
      team_(connection.channels),
      known_calls_(group.size) {}

// One operation at a time, in order; after a failure none. A failure here is a failure of the communicator.
// name() is what it is called, for people.
template <class Name, class Body>
Status Core::in_turn(uint64_t epoch, Name&& name, uint64_t now, Body&& body) {
  if (turnstile.passed() + 1 < epoch) now = 0;  // it will wait
  TimeLimit limit(options.timeout);
  Status status = turnstile.enter(epoch, limit, *fabric);
  if (status.ok() && fabric->has_failed()) status = fabric->failure();
  TrafficCounters traffic{.operations = 1};
  if (status.ok()) {
    fabric->mark_started(epoch);
    flight->start(epoch, now != 0 ? now : flight->now());
    status = body(limit, traffic);
    flight->finish(epoch, status.code());
    fabric->mark_finished(epoch);
  }
  if (!status.ok()) abort(status);
  count(traffic);
  turnstile.leave(epoch);
  if (status.ok()) return status;
  return status.context(fmt::format("rank {} runs op {} {}", self.rank, epoch, name()));
}

void Core::count(const TrafficCounters& operation) noexcept {
  const auto add = [](std::atomic<uint64_t>& sum, uint64_t term) {
    sum.store(sum.load(std::memory_order_relaxed) + term, std::memory_order_relaxed);
  };
  add(operations_, operation.operations);
  add(bytes_sent_, operation.bytes_sent);
  add(bytes_received_, operation.bytes_received);
}

Status Core::run(Operation& operation, uint64_t now) {
  const auto called = [&] { return name(operation.collective); };
  return in_turn(operation.epoch, called, now, [&](TimeLimit& limit, TrafficCounters& traffic) {
    const Workload& workload = operation.workload;
    const size_t footprint_bytes = workload.whole_bytes * static_cast<size_t>(self.size);
    Execution execution{*fabric,         operation,      limit, traffic, attach_chunk_bytes_,
                        footprint_bytes, reading_order_, team_};
    return chooser.choose(workload).run(execution);
  });
}

// What an operation needs while it waits in a stream.
struct AsyncOperation {
  AsyncOperation(std::shared_ptr<Core> owner, const Operation& given)
      : core(std::move(owner)),
        items(given.known != nullptr ? std::vector<Item>() : std::vector(given.items.begin(), given.items.end())),
        counts(given.counts.begin(), given.counts.end()),
        label(given.label),
        operation(given),
        work(std::make_shared<Work::State>(core->self.rank, name(given.collective).data(), Deadline::max())) {
    if (given.known == nullptr) operation.items = items;
    operation.counts = counts;
    operation.label = label;
  }
  void run() {
    work->set_deadline(Clock::now() + core->options.timeout);
    work->finish(core->run(operation, core->flight->now()));
  }
  std::shared_ptr<Core> core;
  std::vector<Item> items;
  std::vector<size_t> counts;
  std::string label;
  Operation operation;
  std::shared_ptr<Work::State> work;
};

Result<Work> Core::submit(Operation& operation, StreamRef stream) {
  if (stream.device().kind != Device::Kind::kHost) {
    return Status(Code::kUnsupported, "this communicator is on host memory; its operations run on host streams");
  }
  SHARDCOMM_TRY(here());
  if (fabric->has_failed()) return failure();
  operation.epoch = next_epoch;
  if (operation.known == nullptr) prepare(operation, self.size);
  const uint64_t now = flight->now();
  if (stream.is_caller()) {
    ++next_epoch;
    flight->enqueue(operation.epoch, call_of(operation), now);
    SHARDCOMM_TRY(run(operation, now));
    return Work(operation.epoch, nullptr);
  }
  auto async = std::make_shared<AsyncOperation>(shared_from_this(), operation);
  SHARDCOMM_TRY(stream.enqueue([async] { async->run(); }));  // a full queue takes no epoch
  ++next_epoch;
  flight->enqueue(operation.epoch, call_of(operation), now);
  return Work(operation.epoch, async->work);
}

template <class Given>
Result<Work> Core::submit_many(Collective collective, std::span<const Given> given, StreamRef stream,
                               std::string_view label) {
  label = label.substr(0, kLabelBytes - 1);
  if (auto known = known_calls_.find(collective, given, label); known != nullptr) {
    Operation again = known->operation;
    again.known = std::move(known);
    return submit(again, stream);
  }
  SHARDCOMM_TRY(check(given, self.rank, self.size));
  std::vector<Item> items;
  items.reserve(given.size());
  for (const Given& one : given) items.push_back(item_of(one));
  if (!KnownCalls::is_worth_it(items.size())) {
    Operation once(collective, items, label);
    return submit(once, stream);
  }
  auto call = std::make_shared<KnownCall>(collective, std::move(items), label);
  Result<Work> work = submit(call->operation, stream);
  if (work.ok()) known_calls_.keep(std::move(call));
  return work;
}

template Result<Work> Core::submit_many(Collective, std::span<const GatherItem>, StreamRef, std::string_view);
template Result<Work> Core::submit_many(Collective, std::span<const ReduceItem>, StreamRef, std::string_view);

Result<std::vector<std::string>> Core::exchange(std::string_view blob, std::string_view label) {
  if (blob.size() > sizeof(Message::payload))
    return Status(Code::kInvalidArgument, fmt::format("{} bytes are too many to exchange", blob.size()));
  SHARDCOMM_TRY(here());
  std::vector<std::string> blobs;
  const uint64_t epoch = next_epoch++, now = flight->now();
  flight->enqueue(epoch, {.label = label}, now);
  SHARDCOMM_TRY(in_turn(
      epoch, [&] { return label; }, now,
      [&](TimeLimit& limit, TrafficCounters&) -> Status {
        std::copy(blob.begin(), blob.end(), reinterpret_cast<char*>(fabric->payload().data()));
        Signature signature{};
        signature.collective = static_cast<uint8_t>(Collective::kBarrier);
        for (const char c : label) signature.detail = signature.detail * 131 + static_cast<unsigned char>(c);
        fabric->announce(signature, 1, blob.size(), {epoch, label});
        SHARDCOMM_TRY(fabric->collect(limit));
        for (Rank r = 0; r < self.size; ++r) {
          const auto payload = fabric->payload_of(r);
          blobs.emplace_back(reinterpret_cast<const char*>(payload.data()), payload.size());
        }
        return {};
      }));
  return blobs;
}

Status Core::health() const {
  SHARDCOMM_TRY(here());
  (void)fabric->check_peers();
  return failure();
}

// The first failure is everybody's; this one's own may come too late.
void Core::abort(const Status& why) noexcept {
  if (!birthplace_.is_here()) return;
  if (fabric->failure().ok()) fabric->abort(why);
  (void)failure();
}

Status Core::failure() const {
  Status failure = fabric->failure();
  if (!failure.ok()) flight->fail(failure);
  return failure;
}

Status Core::here() const {
  if (birthplace_.is_here()) [[likely]]
    return {};
  return Status(Code::kFailedPrecondition,
                fmt::format("rank {}: this process was forked after the communicator was made, which only the process "
                            "that made it can use",
                            self.rank));
}

TrafficCounters Core::traffic() const noexcept {
  return {operations_.load(std::memory_order_relaxed), bytes_sent_.load(std::memory_order_relaxed),
          bytes_received_.load(std::memory_order_relaxed)};
}

}  // namespace shardcomm
