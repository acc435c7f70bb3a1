// shardcomm run: what ranks find in their environment, how their output is passed on, how the job ends.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <sstream>
#include <thread>

#include "tests/command/child.h"

namespace shardcomm::testing {
namespace {

using std::chrono::milliseconds;

CommandSpec shell(int ranks, const std::string& script) {
  return {.arguments = {"run", "-n", std::to_string(ranks), "--", "sh", "-c", script}};
}

// The lines of each rank, without the prefix that every line must have.
std::map<int, std::vector<std::string>> by_rank(std::string_view text) {
  std::map<int, std::vector<std::string>> lines;
  for (const std::string& line : lines_of(text)) {
    int rank = -1, begin = 0;
    if (std::sscanf(line.c_str(), "[%d] %n", &rank, &begin) != 1 || begin == 0) {
      ADD_FAILURE() << "no prefix: " << line;
      continue;
    }
    lines[rank].push_back(line.substr(static_cast<size_t>(begin)));
  }
  return lines;
}

TEST(Run, GivesEachRankItsPlace) {
  const CommandResult result =
      run_command(shell(3,
                        "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR; echo $MASTER_PORT; "
                        "echo ${#SHARDCOMM_JOB_SECRET}; echo $OMP_NUM_THREADS"));
  EXPECT_TRUE(succeeded(result));
  auto lines = by_rank(result.out);
  ASSERT_EQ(lines.size(), 3u) << result.out;
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(lines[rank].size(), 4u) << result.out;
    const std::string r = std::to_string(rank);
    EXPECT_EQ(lines[rank][0], r + " " + r + " 3 3 127.0.0.1");
    EXPECT_GT(std::atoi(lines[rank][1].c_str()), 1023);
    EXPECT_EQ(lines[rank][1], lines[0][1]) << "the port";
    EXPECT_GE(std::atoi(lines[rank][2].c_str()), 32) << "characters of the secret";
    EXPECT_GE(std::atoi(lines[rank][3].c_str()), 1);
  }
}

TEST(Run, PassesThreadsAndAGivenSecretOn) {
  const CommandResult result =
      run_command({.arguments = {"run", "-n", "2", "--threads-per-rank", "5", "--", "sh", "-c",
                                 "test \"$SHARDCOMM_JOB_SECRET\" = given && echo $OMP_NUM_THREADS $OTHER"},
                   .environment = {"SHARDCOMM_JOB_SECRET=given", "OMP_NUM_THREADS=7", "OTHER=other"}});
  EXPECT_TRUE(succeeded(result));
  for (const auto& [rank, lines] : by_rank(result.out)) EXPECT_EQ(lines, Words{"5 other"}) << rank;
}

TEST(Run, PutsTheRankBeforeEveryLineOfBothStreams) {
  const CommandResult result = run_command(
      shell(4, "for i in 1 2 3 4 5 6 7 8 9; do echo out $RANK $i; echo err $RANK $i >&2; done; printf 'no newline'"));
  EXPECT_EQ(result.code, 0);
  const auto out = by_rank(result.out), err = by_rank(result.err);
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_EQ(out.at(rank).size(), 10u) << result.out;
    ASSERT_EQ(err.at(rank).size(), 9u) << result.err;
    for (size_t i = 0; i < 9; ++i) {
      std::string tail(" ");
      tail.append(std::to_string(rank)).append(" ").append(std::to_string(i + 1));
      EXPECT_EQ(out.at(rank)[i], "out" + tail);
      EXPECT_EQ(err.at(rank)[i], "err" + tail);
    }
    EXPECT_EQ(out.at(rank)[9], "no newline");
  }
}

TEST(Run, PassesLongLinesOnWhole) {
  const CommandResult result =
      run_command(shell(2, "i=0; while [ $i -lt 400 ]; do printf '%0100d' $RANK; i=$((i+1)); done; echo"));
  EXPECT_TRUE(succeeded(result));
  for (const auto& [rank, lines] : by_rank(result.out)) {
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_EQ(lines[0].size(), 40000u);
    EXPECT_EQ(std::count(lines[0].begin(), lines[0].end(), '0' + rank), rank == 0 ? 40000 : 400);
  }
}

TEST(Run, GivesStandardInputToRankZero) {
  CommandSpec spec = shell(3, "cat; echo end");
  spec.input = "first\nsecond\n";
  const CommandResult result = run_command(spec);
  EXPECT_TRUE(succeeded(result));
  auto lines = by_rank(result.out);
  EXPECT_EQ(lines[0], (Words{"first", "second", "end"}));
  EXPECT_EQ(lines[1], Words{"end"});
  EXPECT_EQ(lines[2], Words{"end"});
}

TEST(Run, ExitsAsTheFirstThatFailsAndStopsTheOthers) {
  const CommandResult result =
      run_command(shell(3, "test $RANK = 1 && exit 7; trap 'exit 9' TERM; while :; do sleep 0.1; done"));
  EXPECT_EQ(result.code, 7);
  EXPECT_NE(result.err.find("rank 1 exited with code 7"), std::string::npos) << result.err;
  EXPECT_LT(result.took, milliseconds(6000));
}

TEST(Run, StopsAlsoThoseWhoIgnoreIt) {
  const CommandResult result =
      run_command(shell(2, "test $RANK = 0 && exit 3; trap '' TERM INT; while :; do sleep 0.1; done"));
  EXPECT_EQ(result.code, 3);
  EXPECT_LT(result.took, milliseconds(8000));
}

TEST(Run, NamesARankThatASignalKilled) {
  const CommandResult result = run_command(shell(2, "test $RANK = 1 && kill -9 $$; exit 0"));
  EXPECT_EQ(result.code, 128 + SIGKILL);
  EXPECT_NE(result.err.find("shardcomm: error: rank 1 was killed by signal 9"), std::string::npos) << result.err;
}

TEST(Run, SaysWhyAProgramCannotBeStarted) {
  EXPECT_TRUE(fails_with(run_command(Words{"run", "-n", "3", "--", "no-such-program"}), 1,
                         {"no-such-program", "No such file or directory"}));
  const TestDirectory directory;
  write_text(directory / "data", "not a program");
  EXPECT_TRUE(
      fails_with(run_command(Words{"run", "-n", "2", "--", directory / "data"}), 1, {"data", "Permission denied"}));
}

TEST(Run, KeepsTheSecretToTheRanks) {
  Command command(shell(2, "echo ready; sleep 30"));
  const pid_t rank = command.rank(1);
  ASSERT_GT(rank, 0);
  std::string secret;
  std::istringstream environment(process_file(rank, "environ"));
  for (std::string entry; std::getline(environment, entry, '\0');) {
    if (entry.starts_with("SHARDCOMM_JOB_SECRET=")) secret = entry.substr(entry.find('=') + 1);
  }
  ASSERT_GE(secret.size(), 32u);
  std::vector<pid_t> all = command.descendants();
  ASSERT_GE(all.size(), 2u);
  all.push_back(command.pid());
  for (const pid_t process : all) EXPECT_EQ(process_file(process, "cmdline").find(secret), std::string::npos);
  EXPECT_EQ(process_file(command.pid(), "environ").find(secret), std::string::npos);
  command.send(SIGTERM);
  const CommandResult result = command.wait();
  EXPECT_EQ(result.code, 128 + SIGTERM);
  EXPECT_EQ((result.out + result.err).find(secret), std::string::npos);
  // Another job has another one.
  EXPECT_EQ(run_command(shell(1, "test \"$SHARDCOMM_JOB_SECRET\" = " + secret)).code, 1);
}

// Ends with its launcher, whatever it started itself.
TEST(Run, EndsEverythingWithSigterm) {
  Command command(shell(3, "sleep 60 & sleep 60 & wait"));
  for (int rank = 0; rank < 3; ++rank) ASSERT_GT(command.rank(rank), 0);
  command.send(SIGTERM);
  const CommandResult result = command.wait();
  EXPECT_EQ(result.code, 128 + SIGTERM);
  EXPECT_LT(result.took, milliseconds(5000));
}

TEST(Run, PassesTheUsersSignalsOn) {
  for (const int signal : {SIGUSR1, SIGUSR2}) {
    Command command(shell(2, "trap 'exit 7' USR1; trap 'exit 8' USR2; echo ready; while :; do sleep 0.01; done"));
    for (int rank = 0; rank < 2; ++rank) ASSERT_GT(command.rank(rank), 0);
    for (int i = 0; i < 2000 && lines_of(command.out_so_far()).size() < 2; ++i)
      std::this_thread::sleep_for(milliseconds(5));
    command.send(signal);
    EXPECT_EQ(command.wait().code, signal == SIGUSR1 ? 7 : 8);
  }
}

TEST(Run, RanksEndWithALauncherThatIsKilled) {
  Command command({.arguments = {"run", "-n", "3", "--", "sleep", "60"}});
  for (int rank = 0; rank < 3; ++rank) ASSERT_GT(command.rank(rank), 0);
  command.send(SIGKILL);
  EXPECT_EQ(command.wait().code, 128 + SIGKILL);  // and nothing is left
}

// A program under run finds its peers: shardcomm itself, by the environment.
TEST(Run, RanksOfTheEnvironmentMeet) {
  const CommandResult result =
      run_command(Words{"run", "-n", "3", "--", SHARDCOMM_COMMAND, "bench", "all_reduce", "-b", "64", "-e", "64"});
  EXPECT_TRUE(succeeded(result));
  const auto lines = by_rank(result.out);
  EXPECT_EQ(lines.size(), 1u) << "only rank 0 reports: " << result.out;
  EXPECT_NE(result.out.find("3 ranks"), std::string::npos) << result.out;
}

}  // namespace
}  // namespace shardcomm::testing
