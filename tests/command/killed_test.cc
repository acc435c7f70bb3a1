// Training that is ended from outside: ranks and launchers that are killed. Whoever is left says who is gone and ends
// in a moment; no process stays, nothing in /dev/shm, and what was saved is whole.
#include <csignal>
#include <thread>

#include "tests/command/training.h"

namespace shardcomm::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

class Killed : public TrainingTest {
 protected:
  // Four ranks that train until they are stopped, and are at it.
  CommandSpec endless() const {
    return {.arguments = training(
                4, {"--steps", "10000000", "--warmup", "3", "--log", log_, "--save", saved_, "--save-every", "5"})};
  }
  void wait_for_steps(size_t count) {
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    while (lines_of(read_text(log_)).size() < count) {
      ASSERT_LT(Clock::now(), deadline) << "no " << count << " steps in time";
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
  const std::string log_ = directory_ / "log.jsonl", saved_ = directory_ / "saved";
};

class KilledRank : public Killed, public ::testing::WithParamInterface<int> {};

TEST_P(KilledRank, EndsTheOthersByName) {
  const int doomed = GetParam();
  Command command(endless());
  wait_for_steps(8);
  const pid_t process = command.rank(doomed);
  ASSERT_GT(process, 0);
  const auto begin = Clock::now();
  ASSERT_EQ(kill(process, SIGKILL), 0);
  const CommandResult result = command.wait();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(result.code, 128 + SIGKILL);
  const std::string name = "rank " + std::to_string(doomed);
  EXPECT_NE(result.err.find(name + " was killed by signal 9"), std::string::npos) << result.err;
  // The survivors ended by themselves, each with a line about who is gone.
  const std::vector<std::string> lines = lines_of(result.err);
  EXPECT_EQ(result.err.find("terminated"), std::string::npos) << result.err;
  EXPECT_GE(lines.size(), 2u) << result.err;
  for (size_t i = 1; i < lines.size(); ++i) {
    EXPECT_TRUE(lines[i].starts_with("shardcomm: error: peer_lost: ")) << lines[i];
    EXPECT_NE(lines[i].find("the process of " + name + " ended"), std::string::npos) << lines[i];
  }
  // What was saved before is whole. The kill may have come while the next checkpoint was written: that one is skipped.
  const CommandResult verified = run_command(Words{"ckpt", "verify", saved_});
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_NE(verified.out.find(": ok, step "), std::string::npos) << verified.out;
  for (const std::string& line : lines_of(verified.err)) {
    EXPECT_NE(line.find("is incomplete and skipped"), std::string::npos) << line;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, KilledRank, ::testing::Values(0, 2),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_F(Killed, SigtermToTheLauncherEndsAll) {
  Command command(endless());
  wait_for_steps(2);
  command.send(SIGTERM);
  const auto begin = Clock::now();
  EXPECT_EQ(command.wait().code, 128 + SIGTERM);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
}

TEST_F(Killed, SigkillToTheLauncherEndsAll) {
  Command command(endless());
  wait_for_steps(2);
  command.send(SIGKILL);
  EXPECT_EQ(command.wait().code, 128 + SIGKILL);  // and every rank ends in a moment
}

// A rank that stands still (here: stopped) is not waited for without end; SIGTERM gets rid of it, too.
TEST_F(Killed, AStoppedRankEndsWithTheJob) {
  Command command(endless());
  wait_for_steps(2);
  const pid_t process = command.rank(1);
  ASSERT_GT(process, 0);
  ASSERT_EQ(kill(process, SIGSTOP), 0);
  command.send(SIGTERM);
  EXPECT_EQ(command.wait().code, 128 + SIGTERM);
}

// The log and the tensors of a run that was killed in the middle and resumed are those of one that was not.
TEST_F(Killed, ContinuesFromItsLastCheckpoint) {
  {
    Command command(endless());
    wait_for_steps(8);
    command.send(SIGKILL);
    command.wait();
  }
  const std::string done = read_text(log_);
  const std::string steps = std::to_string(lines_of(done).size() + 10);
  write_text(log_, done + "{\"step\":9");  // as if the last line had been cut short
  const CommandResult resumed = train(
      4, {"--steps", steps, "--warmup", "3", "--save", saved_, "--save-every", "5", "--resume", "auto", "--log", log_});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  const std::string whole = directory_ / "whole";
  EXPECT_TRUE(succeeded(train(4, {"--steps", steps, "--warmup", "3", "--save", whole, "--log", whole + ".jsonl"})));
  const std::vector<Json> expected = read_log(whole + ".jsonl"), got = read_log(log_);
  ASSERT_EQ(std::to_string(expected.size()), steps);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) expect_same_step(got[i], expected[i]);
  const std::string step = "/step-" + std::string(8 - steps.size(), '0') + steps;
  expect_same_tensors(saved_ + step, whole + step);
}

}  // namespace
}  // namespace shardcomm::testing
