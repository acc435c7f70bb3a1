// `shardcomm ps` and `shardcomm dump` beside a job of four ranks, one of which is stopped, and over what it dumped.
#include <csignal>
#include <cstdio>
#include <thread>

#include "tests/command/child.h"
#include "tests/flight/support.h"

namespace shardcomm::testing {
namespace {

constexpr int kRanks = 4;
constexpr Rank kStopped = 2;

struct Output {
  int code = -1;
  std::string text;  // both streams
};

// Beside other threads, which Command does not allow.
Output run_beside(const std::string& arguments) {
  Output output;
  std::FILE* pipe = popen((std::string(SHARDCOMM_COMMAND) + " " + arguments + " 2>&1").c_str(), "re");
  if (pipe == nullptr) return output;
  char piece[4096];
  while (const size_t bytes = std::fread(piece, 1, sizeof piece, pipe)) output.text.append(piece, bytes);
  const int status = pclose(pipe);
  output.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

std::string quoted(const std::string& label) { return std::string("'").append(label).append("'"); }

std::vector<std::string> lines_with(const std::string& text, std::string_view word) {
  std::vector<std::string> found;
  for (std::string& line : lines_of(text)) {
    if (line.find(word) != std::string::npos) found.push_back(std::move(line));
  }
  return found;
}

void expect_ps(const std::vector<pid_t>& pids, const std::string& label) {
  const Output text = run_beside("ps");
  EXPECT_EQ(text.code, 0) << text.text;
  size_t waiting = 0;  // other jobs of this machine may wait too
  for (const std::string& line : lines_with(text.text, quoted(label)))
    waiting += line.find("waiting") != std::string::npos;
  EXPECT_EQ(waiting, size_t{kRanks - 1}) << text.text;
  const auto stopped = lines_with(text.text, std::string(" ").append(std::to_string(pids[kStopped])).append(" "));
  ASSERT_EQ(stopped.size(), 1u) << text.text;
  for (const char* word : {"idle", "op 3", "late", "stopped"})
    EXPECT_NE(stopped[0].find(word), std::string::npos) << stopped[0];

  const Output json = run_beside("ps --json");
  EXPECT_EQ(json.code, 0);
  size_t seen = 0;
  const auto all = parse_json(json.text);
  for (const auto& group : all["communicators"]) {
    for (const auto& record : group["records"]) {
      if (std::find(pids.begin(), pids.end(), record["pid"].get<pid_t>()) == pids.end()) continue;
      ++seen;
      const bool is_stopped = record["pid"] == pids[kStopped];
      EXPECT_EQ(record["place"]["state"], is_stopped ? "idle" : "waiting");
      EXPECT_EQ(record["place"]["late"], is_stopped);
      EXPECT_EQ(record["process_state"] == "T", is_stopped);
      EXPECT_FALSE(record.contains("operations"));
    }
  }
  EXPECT_EQ(seen, size_t{kRanks}) << json.text;
}

void expect_dump(const std::vector<pid_t>& pids, const std::string& label, const std::string& file) {
  std::string arguments = "dump";
  for (const pid_t pid : pids) arguments.append(" ").append(std::to_string(pid));
  const Output text = run_beside(arguments);
  EXPECT_EQ(text.code, 0) << text.text;
  for (const char* word : {"4 ranks", "ranks differ first at op 4 barrier",
                           "ranks 0,1,3 started; rank 2 has not called it", "op", "enqueued", "running", "stopped"})
    EXPECT_NE(text.text.find(word), std::string::npos) << word << " is not in\n" << text.text;
  EXPECT_EQ(lines_with(text.text, " ok").size(), size_t{3 * kRanks}) << text.text;
  EXPECT_EQ(lines_with(text.text, quoted(label)).size(), 2u) << text.text;

  // As a file, and from that file.
  EXPECT_EQ(run_beside(arguments + " -o " + file).text, "");
  const Output again = run_beside("dump " + file);
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_NE(again.text.find("ranks 0,1,3 started; rank 2 has not called it"), std::string::npos) << again.text;
  const auto all = parse_json(read_text(file));
  ASSERT_EQ(all["communicators"].size(), 1u);
  EXPECT_EQ(all["communicators"][0]["records"][0]["operations"].size(), 4u);
  const Output last = run_beside(arguments + " --last 1");
  EXPECT_EQ(lines_with(last.text, " ok").size(), 0u) << last.text;
}

TEST(FlightCommand, ShowsAJobWithAStoppedRank) {
  const TestDirectory directory;
  const SharedWords words;
  const std::string label = "late " + std::to_string(getpid());
  run_ranks(kRanks, RankMode::kProcesses,
            [&](RankContext& rank) {
              Communicator comm = rank.communicator();
              words[static_cast<size_t>(rank.rank())] = getpid();
              for (int i = 0; i < 3; ++i) ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
              if (rank.rank() == kStopped) raise(SIGSTOP);
              std::thread observer([&] {
                if (rank.rank() != 0) return;
                std::this_thread::sleep_for(300ms);
                std::vector<pid_t> pids;
                for (size_t r = 0; r < kRanks; ++r) pids.push_back(static_cast<pid_t>(words[r].load()));
                expect_ps(pids, label);
                expect_dump(pids, label, directory / "dump.json");
                comm.abort("seen enough");
              });
              const Status status = outcome(comm.barrier(StreamRef::caller(), label));
              observer.join();
              EXPECT_TRUE(failed_with(status, Code::kAborted, {"seen enough"}));
            },
            {.doomed = {kStopped}});
}

// Each rank's own file, as a failure leaves it, merged.
TEST(FlightCommand, ReadsTheFilesOfAFailure) {
  const TestDirectory directory;
  run_ranks(3, RankMode::kProcesses, [&](RankContext& rank) {
    Communicator comm = rank.communicator("dump_dir=" + directory.path());
    std::vector<float> in(64), out(64);
    ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    const Status status = rank.rank() == 1
                              ? outcome(comm.all_to_all({in.data(), out.data(), 4, DType::kF32}, StreamRef::caller()))
                              : outcome(comm.all_gather({in.data(), out.data(), 4, DType::kF32}, StreamRef::caller()));
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  });
  Words arguments = {"dump"};
  for (const std::string& name : directory.content()) arguments.push_back(directory / name);
  ASSERT_EQ(arguments.size(), 4u);
  const CommandResult all = run_command(arguments);
  EXPECT_TRUE(succeeded(all)) << all.err;
  EXPECT_NE(all.out.find("op 2: ranks 0,2 all_gather f32 4; rank 1 all_to_all f32 4"), std::string::npos) << all.out;
  EXPECT_NE(all.out.find("failed, says ranks 0,1,2: failed_precondition"), std::string::npos) << all.out;
  arguments.pop_back();
  const CommandResult some = run_command(arguments);
  EXPECT_TRUE(succeeded(some));
  EXPECT_NE(some.out.find("no record of rank 2"), std::string::npos) << some.out;
  const CommandResult json = run_command(Words{"dump", arguments[1], "--json"});
  EXPECT_EQ(parse_json(json.out)["communicators"][0]["missing"].size(), 2u);
}

// A rank that calls nothing learns of no failure; its file is there when it has left.
TEST(FlightCommand, AnIdleRankWritesItsFileWhenItLeaves) {
  const TestDirectory directory;
  const SharedWords words;
  run_ranks(2, RankMode::kProcesses, [&](RankContext& rank) {
    Communicator comm = rank.communicator("dump_dir=" + directory.path());
    if (rank.rank() == 0) {
      comm.abort("nothing to do");
      words[0] = 1;
    }
    words.await(0, 1);
  });
  ASSERT_EQ(directory.content().size(), 2u);
  for (const std::string& name : directory.content()) {
    EXPECT_NE(read_text(directory / name).find("nothing to do"), std::string::npos) << name;
  }
}

TEST(FlightCommand, NamesWhatCannotBeRead) {
  const TestDirectory directory;
  EXPECT_TRUE(fails_with(run_command(Words{"dump"}), 2, {"dump", "source"}));
  EXPECT_TRUE(fails_with(run_command(Words{"dump", "1073741824"}), 1, {"no process 1073741824"}));
  EXPECT_TRUE(fails_with(run_command(Words{"dump", std::to_string(getpid())}), 1,
                         {"no communicator", std::to_string(getpid())}));
  EXPECT_TRUE(fails_with(run_command(Words{"dump", directory / "none.json"}), 1, {"none.json", "No such file"}));
  write_text(directory / "cut.json", R"({"format":"shardcomm-flight","format_version":1,)");
  EXPECT_TRUE(fails_with(run_command(Words{"dump", directory / "cut.json"}), 1, {"cut.json", "no flight record"}));
  EXPECT_TRUE(fails_with(run_command(Words{"ps", "--jsn"}), 2, {"--jsn", "--json"}));
  EXPECT_TRUE(
      fails_with(run_command(Words{"dump", directory / "cut.json", "--last", "x"}), 2, {"--last", "whole number"}));
}

}  // namespace
}  // namespace shardcomm::testing
