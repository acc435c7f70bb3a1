// Host streams, events and work: order, limits, deadlines, and what outlives what.
#include "shardcomm/stream.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/log.h"
#include "device/device.h"

namespace shardcomm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

Deadline within(milliseconds time) { return steady_clock::now() + time; }
Deadline soon() { return within(seconds(60)); }

HostStream make_stream(std::string_view name = "test") {
  auto stream = HostStream::create(name);
  EXPECT_TRUE(stream.ok()) << stream.status().to_string();
  return std::move(stream).value();
}

// Holds a stream until opened, at the latest at its end.
class Gate {
 public:
  explicit Gate(StreamRef stream) {
    EXPECT_TRUE(stream.enqueue([open = open_] { open->wait(false); }).ok());
  }
  ~Gate() { open(); }
  void open() {
    *open_ = true;
    open_->notify_all();
  }

 private:
  std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
};

TEST(HostStream, RunsTasksInOrderOnItsThread) {
  const HostStream stream = make_stream("a name longer than 15");
  std::vector<int> order;
  char name[16] = {};
  ASSERT_TRUE(stream.ref().enqueue([&] { pthread_getname_np(pthread_self(), name, sizeof name); }).ok());
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(stream.ref().enqueue([&order, i] { order.push_back(i); }).ok());
  ASSERT_TRUE(stream.ref().synchronize(soon()).ok());
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  EXPECT_STREQ(name, "a name longer t");
}

TEST(HostStream, KeepsTheOrderOfTasksFromTwoThreads) {
  const HostStream stream = make_stream();
  constexpr int kTasks = 50'000;
  std::vector<int> last(2, -1);
  bool ordered = true;
  const auto fill = [&](size_t who) {
    for (int i = 0; i < kTasks; ++i) {
      const Status status = stream.ref().enqueue([&, who, i] {
        ordered = ordered && last[who] == i - 1;
        last[who] = i;
      });
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
  };
  std::thread other(fill, 1);
  fill(0);
  other.join();
  ASSERT_TRUE(stream.ref().synchronize(soon()).ok());
  EXPECT_TRUE(ordered);
  EXPECT_EQ(last, (std::vector<int>{kTasks - 1, kTasks - 1}));
}

TEST(HostStream, AFullQueueIsUnavailable) {
  const HostStream stream = make_stream("narrow");
  std::atomic<size_t> ran{0};
  size_t accepted = 0;
  {
    Gate gate(stream.ref());
    Status status;
    while (accepted <= kHostStreamTasks) {
      status = stream.ref().enqueue([&] { ++ran; });
      if (!status.ok()) break;
      ++accepted;
    }
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_NE(status.message().find("narrow"), std::string_view::npos);
    EXPECT_EQ(stream.ref().synchronize(within(milliseconds(10))).code(), Code::kTimedOut);
    gate.open();
    EXPECT_TRUE(stream.ref().synchronize(soon()).ok());
  }
  EXPECT_EQ(ran, accepted);
  EXPECT_TRUE(stream.ref().enqueue([] {}).ok());
}

TEST(HostStream, DestructionDrains) {
  int ran = 0;
  {
    HostStream stream = make_stream();
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(stream.ref()
                      .enqueue([&] {
                        std::this_thread::sleep_for(std::chrono::microseconds(50));
                        ++ran;
                      })
                      .ok());
    }
    const HostStream moved = std::move(stream);
  }
  EXPECT_EQ(ran, 100);
}

TEST(HostStream, SynchronizeTimesOutAndNamesTheStream) {
  const HostStream stream = make_stream("stuck");
  Gate gate(stream.ref());
  const auto begin = steady_clock::now();
  const Status status = stream.ref().synchronize(within(milliseconds(30)));
  EXPECT_EQ(status.to_string(), "timed_out: host stream stuck has run 0 of 1 tasks");
  EXPECT_GE(steady_clock::now() - begin, milliseconds(30));
  EXPECT_EQ(stream.ref().synchronize(Deadline::min()).code(), Code::kTimedOut);
  gate.open();
  EXPECT_TRUE(stream.ref().synchronize(Deadline::max()).ok());
}

TEST(HostStream, WhatATaskHoldsEndsBeforeSynchronizeReturns) {
  const HostStream stream = make_stream();
  std::atomic<bool> ended{false};
  const auto end_slowly = [&](int* value) {
    std::this_thread::sleep_for(milliseconds(20));
    delete value;
    ended = true;
  };
  std::shared_ptr<int> held(new int(1), end_slowly);
  ASSERT_TRUE(stream.ref().enqueue([held] { EXPECT_EQ(*held, 1); }).ok());
  held.reset();
  ASSERT_TRUE(stream.ref().synchronize(soon()).ok());
  EXPECT_TRUE(ended);
}

TEST(HostStream, WaitingForItselfIsRefused) {
  const HostStream stream = make_stream();
  Status status;
  bool inside = false;
  ASSERT_TRUE(stream.ref()
                  .enqueue([&] {
                    inside = on_thread_of(stream.ref());
                    status = stream.ref().synchronize(soon());
                  })
                  .ok());
  ASSERT_TRUE(stream.ref().synchronize(soon()).ok());
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_TRUE(inside);
  EXPECT_FALSE(on_thread_of(stream.ref()));
  EXPECT_FALSE(on_thread_of(StreamRef::caller()));
}

TEST(CallerStream, RunsAtOnce) {
  int ran = 0;
  EXPECT_TRUE(StreamRef::caller().enqueue([&] { ++ran; }).ok());
  EXPECT_EQ(ran, 1);
  EXPECT_TRUE(StreamRef::caller().synchronize(Deadline::min()).ok());
  EXPECT_TRUE(Event::record(StreamRef::caller()).value().done());
  EXPECT_EQ(StreamRef::caller().enqueue(nullptr).code(), Code::kInvalidArgument);
}

TEST(Event, OrdersTwoStreams) {
  const HostStream producer = make_stream("producer");
  const HostStream consumer = make_stream("consumer");
  int value = 0;  // unprotected on purpose: the streams' order is what the sanitizer checks
  for (int i = 1; i <= 500; ++i) {
    ASSERT_TRUE(producer.ref().enqueue([&value, i] { value = i; }).ok());
    const auto written = Event::record(producer.ref());
    ASSERT_TRUE(written.ok());
    ASSERT_TRUE(consumer.ref().wait(written.value()).ok());
    ASSERT_TRUE(consumer.ref().enqueue([&value, i] { EXPECT_EQ(value, i); }).ok());
    const auto read = Event::record(consumer.ref());
    ASSERT_TRUE(producer.ref().wait(read.value()).ok());
  }
  ASSERT_TRUE(producer.ref().synchronize(soon()).ok());
  ASSERT_TRUE(consumer.ref().synchronize(soon()).ok());
}

TEST(Event, IsReachedWhenThePastIs) {
  const HostStream stream = make_stream();
  Gate first(stream.ref());
  const Event event = Event::record(stream.ref()).value();
  Gate second(stream.ref());
  EXPECT_FALSE(event.done());
  EXPECT_EQ(event.synchronize(within(milliseconds(10))).code(), Code::kTimedOut);
  EXPECT_TRUE(stream.ref().wait(event).ok());  // its own past
  first.open();
  EXPECT_TRUE(event.synchronize(soon()).ok());
  EXPECT_TRUE(event.done());
  EXPECT_TRUE(StreamRef::caller().wait(event).ok());
}

TEST(Event, OutlivesItsStream) {
  Event event = Event::record(StreamRef::caller()).value();
  {
    const HostStream stream = make_stream();
    ASSERT_TRUE(stream.ref().enqueue([] { std::this_thread::sleep_for(milliseconds(5)); }).ok());
    event = Event::record(stream.ref()).value();
  }
  EXPECT_TRUE(event.done());
  EXPECT_TRUE(event.synchronize(Deadline::min()).ok());
}

TEST(Work, DefaultHasSucceeded) {
  const Work work;
  EXPECT_TRUE(work.done());
  EXPECT_TRUE(work.status().ok());
  EXPECT_TRUE(work.synchronize(Deadline::min()).ok());
  EXPECT_TRUE(StreamRef::caller().wait(work).ok());
}

TEST(Work, FinishesOnceForEveryWaiter) {
  const auto state = std::make_shared<Work::State>(3, "all_gather", soon());
  const Work work(7, state);
  EXPECT_EQ(work.status().code(), Code::kUnavailable);
  EXPECT_EQ(work.synchronize(within(milliseconds(5))).to_string(),
            "timed_out: rank 3: all_gather of epoch 7 has not finished");
  std::atomic<int> aborted{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&] { aborted += work.synchronize(soon()).code() == Code::kAborted ? 1 : 0; });
  }
  std::this_thread::sleep_for(milliseconds(5));
  state->finish(Status(Code::kAborted, "rank 1 said so"));
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(aborted, 3);
  EXPECT_TRUE(work.done());
  EXPECT_EQ(work.status().message(), "rank 1 said so");
  EXPECT_EQ(StreamRef::caller().wait(work).code(), Code::kAborted);
}

TEST(Work, OrdersAStreamAndFailureLetsItGoOn) {
  const HostStream stream = make_stream();
  int payload = 0;
  for (const Code code : {Code::kOk, Code::kPeerLost}) {
    const auto state = std::make_shared<Work::State>(0, "barrier", soon());
    ASSERT_TRUE(stream.ref().wait(Work(1, state)).ok());
    bool ran = false;
    ASSERT_TRUE(stream.ref().enqueue([&] { ran = payload > 0; }).ok());
    EXPECT_EQ(stream.ref().synchronize(within(milliseconds(10))).code(), Code::kTimedOut);
    ++payload;
    state->finish(Status(code, "text"));
    ASSERT_TRUE(stream.ref().synchronize(soon()).ok());
    EXPECT_TRUE(ran);
  }
}

TEST(Work, TheCallerStreamWaitsUntilTheWorksOwnDeadline) {
  const auto state = std::make_shared<Work::State>(0, "broadcast", Deadline::max());
  state->set_deadline(within(milliseconds(50)) - kWaitGrace);
  const auto begin = steady_clock::now();
  EXPECT_EQ(StreamRef::caller().wait(Work(9, state)).code(), Code::kTimedOut);
  EXPECT_LT(steady_clock::now() - begin, seconds(30));
}

TEST(Work, FinishMayRaceWithSynchronize) {
  const HostStream stream = make_stream();
  for (int i = 0; i < 5000; ++i) {
    const auto state = std::make_shared<Work::State>(0, "all_reduce", soon());
    ASSERT_TRUE(stream.ref().enqueue([state] { state->finish({}); }).ok());
    ASSERT_TRUE(Work(1, state).synchronize(soon()).ok());
  }
}

TEST(CudaStream, IsUnsupportedInThisBuild) {
  const StreamRef stream = StreamRef::cuda(nullptr, 1);
  EXPECT_EQ(stream.device(), (Device{Device::Kind::kCuda, 1}));
  EXPECT_FALSE(stream.is_caller());
  EXPECT_EQ(stream.enqueue([] {}).code(), Code::kUnsupported);
  EXPECT_EQ(stream.wait(Work()).code(), Code::kUnsupported);
  EXPECT_EQ(stream.synchronize(soon()).code(), Code::kUnsupported);
  EXPECT_EQ(Event::record(stream).status().code(), Code::kUnsupported);
  EXPECT_FALSE(on_thread_of(stream));
}

}  // namespace
}  // namespace shardcomm
