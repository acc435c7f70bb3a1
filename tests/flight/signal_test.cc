// SIGUSR1: dumps of a rank that is stuck, and whose handler it is. Every rank is a process of its own, since a handler
// belongs to the process.
#include <fcntl.h>

#include <csignal>

#include "tests/flight/support.h"

namespace shardcomm::testing {
namespace {

std::atomic<int> calls{0};
void count_call(int) { calls.fetch_add(1); }

void handle_with(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigaction(SIGUSR1, &action, nullptr);
}

void (*present_handler())(int) {
  struct sigaction present {};
  sigaction(SIGUSR1, nullptr, &present);
  return present.sa_handler;
}

enum : size_t { kProcess, kGo };  // in SharedWords

// Rank 0 sits in a barrier, with all of its threads blocked, and is asked by rank 1.
void ask_stuck_rank(const std::string& options, const std::function<void()>& before, const std::function<void()>& ask) {
  const SharedWords words;
  run_ranks(2, RankMode::kProcesses, [&](RankContext& rank) {
    if (rank.rank() == 0) before();
    Communicator comm = rank.communicator(options);
    if (rank.rank() == 0) {
      words[kProcess] = getpid();
    } else {
      words.await(kProcess, 1);
      std::this_thread::sleep_for(200ms);
      kill(static_cast<pid_t>(words[kProcess]), SIGUSR1);
      ask();
    }
    EXPECT_TRUE(outcome(comm.barrier(StreamRef::caller(), "stuck")).ok()) << "being asked changes nothing";
    EXPECT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
  });
}

void expect_stuck(const FlightRecord& record) {
  EXPECT_EQ(record.rank, 0);
  EXPECT_EQ(record.reason, "signal");
  EXPECT_TRUE(record.failure.ok());
  ASSERT_EQ(record.operations.size(), 1u);
  EXPECT_EQ(record.operations[0].call(), "barrier 'stuck'");
  EXPECT_NE(record.operations[0].started_ns, 0);
  EXPECT_EQ(record.operations[0].finished_ns, 0);
  EXPECT_GT(record.read_ns - record.operations[0].started_ns, 50'000'000);
}

TEST(FlightSignal, DumpsAStuckRankToTheDirectory) {
  const DumpDirectory directory;
  ask_stuck_rank(
      directory.option(), [] {},
      [&] {
        ASSERT_TRUE(directory.await(1));
        const std::vector<FlightGroup> groups = directory.groups();
        ASSERT_EQ(groups.size(), 1u);
        expect_stuck(groups[0].records[0]);
      });
}

TEST(FlightSignal, DumpsAStuckRankToStandardError) {
  const DumpDirectory directory;
  const std::string path = directory.path() + "/stderr";
  ask_stuck_rank(
      "", [&] { dup2(open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600), STDERR_FILENO); },
      [&] {
        Result<std::vector<FlightRecord>> found = Status(Code::kUnavailable, "nothing yet");
        for (int i = 0; i < 500 && !found.ok(); ++i) {
          std::this_thread::sleep_for(10ms);
          found = parse_flight_json(read_text_file(path));
        }
        ASSERT_TRUE(found.ok()) << found.status().to_string();
        expect_stuck(found->front());
      });
}

TEST(FlightSignal, LeavesTheHandlerOfTheProgramAlone) {
  const DumpDirectory directory;
  run_ranks(1, RankMode::kProcesses, [&](RankContext& rank) {
    handle_with(count_call);
    Communicator comm = rank.communicator(directory.option());
    EXPECT_EQ(present_handler(), count_call);
    raise(SIGUSR1);
    EXPECT_EQ(calls, 1);
    EXPECT_TRUE(directory.files().empty());
  });
  run_ranks(1, RankMode::kProcesses, [&](RankContext& rank) {
    handle_with(SIG_IGN);
    Communicator comm = rank.communicator(directory.option());
    EXPECT_EQ(present_handler(), SIG_IGN);
    raise(SIGUSR1);
    EXPECT_TRUE(directory.files().empty());
  });
}

TEST(FlightSignal, AHandlerThatComesLaterStays) {
  const DumpDirectory directory;
  run_ranks(1, RankMode::kProcesses, [&](RankContext& rank) {
    Communicator first = rank.communicator(directory.option());
    handle_with(count_call);
    Communicator second = rank.communicator(directory.option() + ",dump_signal=on");
    EXPECT_EQ(present_handler(), count_call);
    raise(SIGUSR1);
    EXPECT_EQ(calls, 1);
    EXPECT_TRUE(directory.files().empty());
  });
}

TEST(FlightSignal, OnTakesTheSignalAndPassesItOn) {
  const DumpDirectory directory;
  run_ranks(1, RankMode::kProcesses, [&](RankContext& rank) {
    handle_with(count_call);
    Communicator first = rank.communicator(directory.option() + ",dump_signal=on");
    Communicator second = rank.communicator(directory.option());
    raise(SIGUSR1);
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(directory.files().size(), 2u) << "one a communicator";
  });
  EXPECT_EQ(directory.groups().size(), 2u);
}

TEST(FlightSignal, OffLeavesTheSignalAlone) {
  run_ranks(1, RankMode::kProcesses, [&](RankContext& rank) {
    Communicator comm = rank.communicator("dump_signal=off");
    EXPECT_EQ(present_handler(), SIG_DFL);
  });
}

// Communicators come and go while signals arrive.
TEST(FlightSignal, MayComeWhileCommunicatorsComeAndGo) {
  const DumpDirectory directory;
  run_ranks(1, RankMode::kProcesses, [&](RankContext& rank) {
    Result<std::unique_ptr<Store>> store = open_store(rank.next_store_uri());
    ASSERT_TRUE(store.ok());
    Options options;
    options.dump_dir = directory.path();
    std::atomic<bool> done{false};
    const Result<Communicator> first = Communicator::create(**store, {.rank = 0, .size = 1, .device = {}}, options);
    ASSERT_TRUE(first.ok()) << first.status().to_string();
    std::thread asker([&] {
      while (!done) kill(getpid(), SIGUSR1);
    });
    for (int i = 0; i < 100; ++i) {
      Result<Communicator> comm = Communicator::create(**store, {.rank = 0, .size = 1, .device = {}}, options);
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      for (int k = 0; k < 20; ++k) ASSERT_TRUE(outcome(comm->barrier(StreamRef::caller())).ok());
    }
    done = true;
    asker.join();
  });
  for (const FlightGroup& group : directory.groups()) EXPECT_EQ(group.records.size(), 1u);
}

}  // namespace
}  // namespace shardcomm::testing
