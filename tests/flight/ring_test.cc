// The flight recorder's ring on its own: what is read back, wrapping around, and readers beside a writer at full speed.
#include <gtest/gtest.h>

#include <atomic>
#include <sstream>
#include <thread>

#include "flight/flight.h"
#include "flight/image.h"
#include "flight/layout.h"
#include "flight/ticks.h"

namespace shardcomm {
namespace {

std::unique_ptr<FlightRecorder> make_recorder(const FlightRecorder::Place& place = {7, 9, 2, 4}) {
  Options options;
  options.dump_signal = "off";
  auto recorder = FlightRecorder::create(place, options);
  EXPECT_TRUE(recorder.ok()) << recorder.status().to_string();
  return std::move(recorder).value();
}

Call call_at(uint64_t epoch) {
  return {.collective = Collective::kReduceScatter, .dtype = DType::kBF16, .op = ReduceOp::kMax, .count = epoch * 3};
}

void record(FlightRecorder& recorder, uint64_t epoch, std::string_view label = {}) {
  const uint64_t now = recorder.now();
  recorder.enqueue(epoch, call_at(epoch), label, now);
  recorder.start(epoch, now);
  recorder.finish(epoch, Code::kOk);
}

TEST(FlightRing, KeepsWhatWasRecorded) {
  const auto recorder = make_recorder();
  const int64_t before = steady_now_ns();
  recorder->enqueue(1, call_at(1), "gather h.3", recorder->now());
  recorder->start(1, recorder->now());
  recorder->finish(1, Code::kTimedOut);
  recorder->enqueue(2, {.kind = CallKind::kAgreement}, "allocate_window w", recorder->now());
  recorder->start(2, recorder->now());
  const Call from_root{.collective = Collective::kBroadcast, .dtype = DType::kF32, .root_or_items = 3, .count = 5};
  recorder->enqueue(3, from_root, {}, recorder->now());
  const Call of_items{.collective = Collective::kAllGatherMany, .root_or_items = 100, .count = 1u << 20};
  recorder->enqueue(4, of_items, {}, recorder->now());
  Call of_items_from_root{.collective = Collective::kBroadcastMany, .root_or_items = 3000, .count = 9};
  set_root(of_items_from_root, 300);
  recorder->enqueue(5, of_items_from_root, {}, recorder->now());
  const FlightRecord found = record_of(recorder->segment());
  const int64_t after = steady_now_ns();
  EXPECT_EQ(found.job, 7u);
  EXPECT_EQ(found.communicator, 9u);
  EXPECT_EQ(found.rank, 2);
  EXPECT_EQ(found.size, 4);
  EXPECT_EQ(found.pid, getpid());
  EXPECT_EQ(found.program, program_invocation_short_name);
  EXPECT_FALSE(found.host.empty());
  EXPECT_FALSE(found.version.empty());
  EXPECT_TRUE(found.failure.ok());
  ASSERT_EQ(found.operations.size(), 5u);
  const FlightOperation& first = found.operations[0];
  EXPECT_EQ(first.call(), "reduce_scatter bf16 3 max 'gather h.3'");
  EXPECT_EQ(first.outcome, Code::kTimedOut);
  constexpr int64_t kSlackNs = 20'000;  // the anchor of a young recorder is a few readings of the clock wide
  EXPECT_GE(first.enqueued_ns, before - kSlackNs);
  EXPECT_GE(first.started_ns, first.enqueued_ns);
  EXPECT_GE(first.finished_ns, first.started_ns);
  EXPECT_LE(first.finished_ns, after + kSlackNs);
  EXPECT_EQ(found.operations[1].call(), "agreement 'allocate_window w'");
  EXPECT_EQ(found.operations[1].finished_ns, 0);
  EXPECT_EQ(found.operations[2].call(), "broadcast f32 5 from root 3");
  EXPECT_EQ(found.operations[2].started_ns, 0);
  EXPECT_EQ(found.operations[3].call(), "all_gather_many 1048576 in 100 items");
  EXPECT_EQ(found.operations[4].call(), "broadcast_many 9 in 3000 items from root 300");
  EXPECT_EQ(found.operations[4].root, 300);
  EXPECT_EQ(found.operations[4].items, 3000u);
}

TEST(FlightRing, KeepsTimesOfTheSteadyClock) {
  const auto recorder = make_recorder();
  std::vector<int64_t> moments;
  for (uint64_t epoch = 1; epoch <= 20; ++epoch) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    moments.push_back(steady_now_ns());
    record(*recorder, epoch);
    moments.push_back(steady_now_ns());
  }
  const FlightRecord found = record_of(recorder->segment());
  ASSERT_EQ(found.operations.size(), 20u);
  for (size_t i = 0; i < 20; ++i) {
    constexpr int64_t kSlackNs = 20'000;
    EXPECT_GE(found.operations[i].started_ns, moments[2 * i] - kSlackNs);
    EXPECT_LE(found.operations[i].finished_ns, moments[2 * i + 1] + kSlackNs);
  }
}

TEST(FlightRing, WrapsAround) {
  const auto recorder = make_recorder();
  constexpr uint64_t kOperations = 3000;
  for (uint64_t epoch = 1; epoch <= kOperations; ++epoch) {
    // Longer and shorter texts in turn: nothing of an older one may show.
    record(*recorder, epoch, std::string_view("a label that is much too long for it").substr(0, epoch % 37));
  }
  const FlightRecord found = record_of(recorder->segment());
  ASSERT_EQ(found.operations.size(), 1024u);
  for (size_t i = 0; i < found.operations.size(); ++i) {
    const FlightOperation& op = found.operations[i];
    EXPECT_EQ(op.epoch, kOperations - 1023 + i);
    EXPECT_EQ(op.count, op.epoch * 3);
    EXPECT_EQ(op.label,
              std::string("a label that is much too long for it").substr(0, std::min<size_t>(op.epoch % 37, 31)));
    EXPECT_NE(op.finished_ns, 0);
  }
}

// Enqueued a whole ring ahead of those that run: what runs is forgotten, and never takes the place of a newer one.
TEST(FlightRing, KeepsTheNewestEnqueuedFarAhead) {
  const auto recorder = make_recorder();
  for (uint64_t epoch = 1; epoch <= 2000; ++epoch) recorder->enqueue(epoch, call_at(epoch), {}, recorder->now());
  for (uint64_t epoch = 1; epoch <= 10; ++epoch) {
    recorder->start(epoch, recorder->now());
    recorder->finish(epoch, Code::kOk);
  }
  const FlightRecord found = record_of(recorder->segment());
  ASSERT_EQ(found.operations.size(), 1024u);
  EXPECT_EQ(found.operations.front().epoch, 977u);
  for (const FlightOperation& op : found.operations) EXPECT_EQ(op.started_ns, 0) << op.epoch;
}

TEST(FlightRing, KeepsTheFirstFailure) {
  const auto recorder = make_recorder();
  recorder->fail(Status(Code::kPeerLost, std::string(2000, 'x')));
  recorder->fail(Status(Code::kAborted, "later"));
  const FlightRecord found = record_of(recorder->segment());
  EXPECT_EQ(found.failure.code(), Code::kPeerLost);
  EXPECT_EQ(found.failure.message(), std::string(511, 'x'));
}

// Every field of a record follows from its epoch, so a record that mixes two is found out.
void expect_consistent(const FlightRecord& found) {
  for (const FlightOperation& op : found.operations) {
    ASSERT_EQ(op.count, op.epoch * 3);
    ASSERT_EQ(op.label, std::to_string(op.epoch * 7'000'000'000'000));
    ASSERT_EQ(op.outcome, op.finished_ns == 0 || op.epoch % 2 == 0 ? Code::kOk : Code::kInternal);
    ASSERT_TRUE(op.finished_ns == 0 || op.finished_ns >= op.started_ns);
    ASSERT_TRUE(op.started_ns == 0 || op.started_ns >= op.enqueued_ns);
  }
}

// The slot that is written next still holds the call of a whole ring ago: where readers and the writer meet most. How
// often it was read, or not at all as it was just being written; 0 for a torn one.
size_t read_oldest(const FlightSegment& segment, const std::atomic<uint64_t>& enqueued) {
  size_t reads = 1;
  for (int i = 0; i < 2000; ++i) {
    const uint64_t newest = enqueued.load(std::memory_order_acquire);
    if (newest < kFlightCapacity) continue;
    const uint64_t epoch = newest + 1 - kFlightCapacity;
    FlightEntry entry;
    if (!read_entry(segment, epoch, entry)) continue;
    ++reads;
    if (entry.call.count != epoch * 3 || entry.label != std::to_string(epoch * 7'000'000'000'000)) return 0;
    if (entry.finished != 0 && entry.outcome != static_cast<int32_t>(epoch % 2 == 0 ? Code::kOk : Code::kInternal))
      return 0;
  }
  return reads;
}

#if defined(__SANITIZE_THREAD__)
constexpr uint64_t kHurriedOperations = 100'000;  // each takes a hundred times as long
#else
constexpr uint64_t kHurriedOperations = 1'000'000;
#endif

TEST(FlightRing, ReadersNeverSeeATornRecord) {
  const auto recorder = make_recorder();
  std::atomic<uint64_t> enqueued{0};
  std::atomic<bool> done{false};
  std::thread caller([&] {
    for (uint64_t epoch = 1; epoch <= kHurriedOperations; ++epoch) {
      recorder->enqueue(epoch, call_at(epoch), std::to_string(epoch * 7'000'000'000'000), recorder->now());
      enqueued.store(epoch, std::memory_order_release);
    }
  });
  std::thread runner([&] {
    for (uint64_t epoch = 1; epoch <= kHurriedOperations; ++epoch) {
      while (enqueued.load(std::memory_order_acquire) < epoch) std::this_thread::yield();
      recorder->start(epoch, recorder->now());
      recorder->finish(epoch, epoch % 2 == 0 ? Code::kOk : Code::kInternal);
    }
    done = true;
  });
  size_t looks = 0, records = 0;
  while (!done) {
    const FlightRecord found = record_of(recorder->segment());
    expect_consistent(found);
    if (::testing::Test::HasFatalFailure()) break;
    const size_t oldest = read_oldest(recorder->segment(), enqueued);
    EXPECT_NE(oldest, 0u) << "torn";
    if (oldest == 0) break;
    ++looks;
    records += found.operations.size();
  }
  caller.join();
  runner.join();
  EXPECT_GT(looks, 0u);
  EXPECT_GT(records, 0u);
  const FlightRecord last = record_of(recorder->segment());
  expect_consistent(last);
  EXPECT_EQ(last.operations.size(), 1024u);
}

}  // namespace
}  // namespace shardcomm
