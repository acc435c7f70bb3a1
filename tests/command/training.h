// Training runs that take a moment: their flags, their text, and what they leave.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "tests/command/child.h"

namespace shardcomm::testing {

inline constexpr int kGlobalBatch = 12;  // sequences a step, whatever the number of ranks

// A directory with a text that a model can learn something of, the same in every run. Nothing may be left in /dev/shm.
class TrainingTest : public ::testing::Test {
 protected:
  TrainingTest();
  ~TrainingTest() override;

  // `train` with `ranks` ranks of a tiny model on that text, at a constant learning rate, and `more` flags.
  Words training(int ranks, const Words& more) const;
  CommandResult train(int ranks, const Words& more) const { return run_command(training(ranks, more)); }

  const TestDirectory directory_;
  const std::string corpus_ = directory_ / "corpus.txt";

 private:
  const std::set<std::string> shared_memory_;
};

using Json = nlohmann::json;
std::vector<Json> read_log(const std::string& path);  // an object a line

// The tensors, parameters and moments, of two step directories: the same names, and the same bits.
void expect_same_tensors(const std::string& one, const std::string& other);
// loss, val_loss, lr, grad_norm, tokens and step of two lines of logs, to the bit.
void expect_same_step(const Json& one, const Json& other);

}  // namespace shardcomm::testing
