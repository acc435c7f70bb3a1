// A process that forks after its communicators were made: the child is told so by every call, whatever it does leaves
// its parent and the parent's peers alone, and it may make communicators of its own.
#include <sys/wait.h>

#include <memory>

#include "tests/flight/support.h"
#include "tests/support/isolation.h"

namespace shardcomm::testing {
namespace {

// Runs `child` in a fork of this process; fails the test with what the child returns.
void in_child(const std::function<std::string()>& child) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t process = fork();
  if (process == 0) {
    alarm(20);  // a hang ends it
    const std::string problem = child();
    const bool told = write(ends[1], problem.data(), problem.size()) == static_cast<ssize_t>(problem.size());
    _exit(told ? 0 : 1);
  }
  close(ends[1]);
  std::string problem;
  char piece[1024];
  for (ssize_t n; (n = read(ends[0], piece, sizeof piece)) > 0;) problem.append(piece, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(process, &status, 0), process);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "wait status " << status;
  EXPECT_EQ(problem, "");
}

// Empty when the call is refused as it should be.
std::string refused(const char* what, const Status& status, Rank rank) {
  const std::string text = status.to_string();
  const bool names = text.find("rank " + std::to_string(rank)) != std::string::npos &&
                     text.find("forked after the communicator was made") != std::string::npos;
  if (status.code() == Code::kFailedPrecondition && names) return {};
  return std::string(what) + ": " + text + "\n";
}

std::string use_in_child(Communicator& comm, StreamRef stream) {
  const Rank rank = comm.rank();
  float value = 1, sum = 0;
  std::string problems = refused("barrier", outcome(comm.barrier(StreamRef::caller())), rank);
  problems += refused("on a stream", outcome(comm.barrier(stream)), rank);
  problems +=
      refused("all_reduce", outcome(comm.all_reduce({&value, &sum, 1, DType::kF32}, StreamRef::caller())), rank);
  problems += refused("split", comm.split(0, 0).status(), rank);
  problems += refused("allocate_window", comm.allocate_window(100, "w").status(), rank);
  problems += refused("health", comm.health(), rank);
  comm.abort("a child's abort");
  return problems;
}

// A child of a rank has its memory and not its place: what it calls is refused at once, and how it ends, or that it
// destroys its copies, concerns nobody.
TEST(ForkedChild, IsNotARankAndHarmsNone) {
  run_ranks(2, RankMode::kProcesses, [](RankContext& rank) {
    std::optional<Communicator> comm(rank.communicator());
    std::optional<Window> window(comm->allocate_window(1 << 20, "w").value());
    ASSERT_TRUE(outcome(comm->barrier(StreamRef::caller())).ok());
    EXPECT_TRUE(works_in_a_child([&] {
      const Stopwatch watch;
      float value = 0;
      const Status statuses[] = {
          outcome(comm->barrier(StreamRef::caller())),
          outcome(comm->broadcast({&value, 1, DType::kF32, 0}, StreamRef::caller())),
          comm->allocate_window(1, "child").status(),
          comm->split(0, 0).status(),
      };
      for (const Status& status : statuses) {
        if (!failed_with(status, Code::kFailedPrecondition, {"forked"})) return false;
      }
      comm->abort("a child has no say");
      window.reset();
      comm.reset();
      return watch.elapsed() < stretched(500ms);
    }));
    for (int i = 0; i < 3; ++i) {
      const Status status = outcome(comm->barrier(StreamRef::caller()));
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    EXPECT_TRUE(comm->health().ok()) << comm->health().to_string();
    window.reset();
  });
}

TEST(ForkedChild, IsRefusedEveryCallAndLeavesNoTrace) {
  const DumpDirectory directory;
  run_ranks(3, RankMode::kProcesses, [&](RankContext& rank) {
    auto comm = std::make_unique<Communicator>(rank.communicator(directory.option()));
    auto window = std::make_unique<Window>(comm->allocate_window(1000, "w").value());
    auto stream = std::make_unique<HostStream>(make_stream());
    ASSERT_TRUE(outcome(comm->barrier(stream->ref())).ok());
    const uint64_t operations = live_group().records[static_cast<size_t>(rank.rank())].operations.size();
    if (rank.rank() == 1) {
      in_child([&] {
        std::string problems = use_in_child(*comm, stream->ref());
        window.reset();
        comm.reset();
        stream.reset();
        return problems;
      });
    }
    EXPECT_TRUE(comm->health().ok()) << comm->health().to_string();
    for (int i = 0; i < 3; ++i) {
      const Status status = outcome(comm->barrier(stream->ref()));
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    const FlightGroup group = live_group();
    EXPECT_EQ(group.records[static_cast<size_t>(rank.rank())].operations.size(), operations + 3);
    EXPECT_TRUE(group.missing.empty());
    for (const FlightRecord& record : group.records) EXPECT_TRUE(record.failure.ok());
    ASSERT_TRUE(outcome(comm->barrier(StreamRef::caller())).ok());
  });
  EXPECT_TRUE(directory.files().empty());
}

// The child destroys what its parent is in the middle of.
TEST(ForkedChild, MayEndWhileAnOperationWaits) {
  run_ranks(2, RankMode::kProcesses, [](RankContext& rank) {
    auto comm = std::make_unique<Communicator>(rank.communicator());
    HostStream stream = make_stream();
    Result<Work> work = Status(Code::kInternal, "none yet");
    if (rank.rank() == 0) {
      work = comm->barrier(stream.ref());
      std::this_thread::sleep_for(50ms);
      in_child([&] {
        comm.reset();
        return std::string();
      });
    } else {
      std::this_thread::sleep_for(300ms);
      work = comm->barrier(stream.ref());
    }
    const Status status = outcome(work);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(outcome(comm->barrier(StreamRef::caller())).ok());
  });
}

TEST(ForkedChild, MayMakeItsOwnCommunicators) {
  run_ranks(2, RankMode::kProcesses, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    in_child([&] {
      auto store = open_store("local://of-a-child");
      auto own = Communicator::create(**store, {.rank = 0, .size = 1, .device = {}}, Options());
      if (!own.ok()) return own.status().to_string();
      const Status status = outcome(own->barrier(StreamRef::caller()));
      std::string problems = status.ok() ? "" : status.to_string();
      const auto records = read_flight_records(getpid());
      if (!records.ok()) return problems + records.status().to_string();
      if (records->size() != 1 || records->front().size != 1) problems += "the parent's communicator counts as its own";
      return problems;
    });
    EXPECT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
  });
}

// A child that lives on holds its parent's files, but is not taken for it.
TEST(ForkedChild, IsNotTakenForItsParent) {
  run_ranks(1, RankMode::kProcesses, [](RankContext& rank) {
    pid_t child = -1;
    {
      Communicator comm = rank.communicator();
      child = fork();
      if (child == 0) {
        alarm(20);
        for (;;) pause();
      }
      const FlightGroup group = live_group();
      ASSERT_EQ(group.records.size(), 1u);
      EXPECT_EQ(group.records[0].process_state, 'R');
      EXPECT_EQ(read_flight_records(child).status().code(), Code::kUnavailable);
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  });
}

}  // namespace
}  // namespace shardcomm::testing
