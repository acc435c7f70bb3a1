// The event ring under many threads, and its two formats.
#include "shardcomm/trace.h"

#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>

namespace shardcomm {
namespace {

TraceRecord record_of(int64_t number) {
  return {.name = "unit",
          .lane = Lane::kGather,
          .rank = 1,
          .begin_ns = number,
          .end_ns = number + 5,
          .bytes = static_cast<uint64_t>(number) * 3};
}

TEST(Trace, RecordsNothingWhenOff) {
  trace_stop();
  (void)trace_take();
  trace_record(record_of(1));
  EXPECT_FALSE(trace_enabled());
  EXPECT_TRUE(trace_take().empty());
  EXPECT_EQ(trace_start(0).code(), Code::kInvalidArgument);
  EXPECT_EQ(trace_start(kMostTraceEvents + 1).code(), Code::kInvalidArgument);
  EXPECT_FALSE(trace_enabled());
}

TEST(Trace, KeepsTheNewestInOrder) {
  ASSERT_TRUE(trace_start(4).ok());
  for (const int64_t number : {10, 30, 20, 40, 60, 50}) trace_record(record_of(number));
  EXPECT_EQ(trace_lost(), 2u);
  trace_stop();
  trace_record(record_of(99));
  const auto events = trace_take();
  ASSERT_EQ(events.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(events[i].begin_ns, static_cast<int64_t>(20 + 10 * i) + (i > 0 ? 10 : 0));
  EXPECT_TRUE(trace_take().empty());
}

TEST(Trace, LongNamesAreCut) {
  ASSERT_TRUE(trace_start(4).ok());
  const std::string name(100, 'x');
  trace_record({.name = name});
  trace_stop();
  const auto events = trace_take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].name, std::string(40, 'x'));
}

TEST(Trace, StartingAgainKeepsARunningRing) {
  ASSERT_TRUE(trace_start(8).ok());
  trace_record(record_of(1));
  ASSERT_TRUE(trace_start(4).ok());
  ASSERT_TRUE(trace_start(8).ok());
  EXPECT_EQ(trace_take().size(), 1u);
  trace_stop();
}

// Writers overtake each other in a small ring while it is taken and restarted: no event may come out torn.
TEST(Trace, TearsNoEventOfManyThreads) {
  std::atomic<bool> stop{false};
  ASSERT_TRUE(trace_start(64).ok());
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([w, &stop] {
      for (int64_t n = w; !stop; n += 4) trace_record(record_of(n));
    });
  }
  size_t seen = 0;
  for (int round = 0; round < 300 || (seen == 0 && round < 100000); ++round) {
    for (const TraceEvent& event : trace_take()) {
      ASSERT_EQ(event.end_ns, event.begin_ns + 5);
      ASSERT_EQ(event.bytes, static_cast<uint64_t>(event.begin_ns) * 3);
      ASSERT_EQ(event.name, "unit");
      ++seen;
    }
    if (round % 50 == 0) {
      trace_stop();
      ASSERT_TRUE(trace_start(round % 100 == 0 ? 32 : 64).ok());
    }
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  trace_stop();
  (void)trace_take();
  EXPECT_GT(seen, 0u);
}

std::vector<TraceEvent> sample() {
  return {{.name = "blocks.7", .lane = Lane::kGather, .rank = 2, .begin_ns = 1500, .end_ns = 4000, .bytes = 64},
          {.name = "", .lane = Lane::kOther, .rank = 0, .begin_ns = -1, .end_ns = INT64_MAX, .bytes = UINT64_MAX},
          {.name = "quote\" \xff", .lane = Lane::kFree, .rank = 2, .begin_ns = 0, .end_ns = 0, .bytes = 0}};
}

TEST(TraceBytes, ComeBackAsEvents) {
  const auto events = sample();
  const auto back = trace_from_bytes(trace_to_bytes(events));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back.value(), events);
  EXPECT_TRUE(trace_from_bytes(trace_to_bytes({})).value().empty());
}

TEST(TraceBytes, DamageIsAnError) {
  const std::string good = trace_to_bytes(sample());
  for (size_t cut = 0; cut < good.size(); ++cut) EXPECT_FALSE(trace_from_bytes(good.substr(0, cut)).ok()) << cut;
  EXPECT_FALSE(trace_from_bytes(good + "x").ok());
  std::string huge = good;
  huge[15] = '\x7f';  // the count's top byte
  EXPECT_EQ(trace_from_bytes(huge).status().code(), Code::kDataLoss);
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = good;
    for (int k = 0; k < 4; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
    (void)trace_from_bytes(bytes);  // must not crash
  }
}

TEST(TraceJson, IsWhatPerfettoReads) {
  const auto trace = nlohmann::json::parse(trace_to_json(sample()));
  std::set<std::string> names;
  bool found = false;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") names.insert(event.at("args").value("name", ""));
    if (event.at("name") != "blocks.7") continue;
    found = true;
    EXPECT_EQ(event.at("ph"), "X");
    EXPECT_EQ(event.at("pid"), 2);
    EXPECT_EQ(event.at("tid"), 0);
    EXPECT_EQ(event.at("ts"), 1.5);
    EXPECT_EQ(event.at("dur"), 2.5);
    EXPECT_EQ(event.at("args").at("bytes"), 64);
  }
  EXPECT_TRUE(found);
  for (const char* wanted : {"rank 0", "rank 2", "gather", "free", "other"})
    EXPECT_EQ(names.count(wanted), 1u) << wanted;
}

}  // namespace
}  // namespace shardcomm
