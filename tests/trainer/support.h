// Trainers in this process: a tiny model, a text, and what each rank reports of its steps.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/rank_group.h"
#include "tools/trainer/matmul.h"
#include "tools/trainer/trainer.h"

namespace shardcomm::trainer {

// A directory with a text in it, gone at the end.
class Workplace {
 public:
  explicit Workplace(int lines) {
    path_ = ::testing::TempDir() + "/shardcomm-train-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp " + path_);
    std::ofstream file(text());
    for (int i = 0; i < lines; ++i) file << "line " << i << ": " << i * i * 31 % 97 << " quick foxes, one lazy dog.\n";
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  ~Workplace() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string text() const { return path_ + "/text"; }

 private:
  std::string path_;
};

// What a rank's trainer says after its last step, and of every step.
struct RankSteps {
  std::vector<StepReport> steps;
  ZeroEstimate estimate;
  uint64_t small_bytes = 0;
};

// Runs `steps` steps with ranks as threads; by rank. Empty, and the test fails, where one of them fails.
inline std::vector<RankSteps> run_steps(const TrainOptions& options, int ranks, size_t steps) {
  std::vector<RankSteps> reports(static_cast<size_t>(ranks));
  const auto run = [&](testing::RankContext& rank) {
    set_matmul_threads(1);
    Communicator comm = rank.communicator();
    auto trainer = Trainer::create(comm, options);
    ASSERT_TRUE(trainer.ok()) << trainer.status().to_string();
    RankSteps& mine = reports[static_cast<size_t>(rank.rank())];
    mine.estimate = (*trainer)->estimate();
    mine.small_bytes = (*trainer)->small_bytes_per_step();
    while (mine.steps.size() < steps) {
      const auto report = (*trainer)->step();
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      mine.steps.push_back(report.value());
    }
  };
  const auto outcome = testing::run_ranks(ranks, testing::RankMode::kThreads, run);
  return outcome.ok() ? reports : std::vector<RankSteps>();
}

}  // namespace shardcomm::trainer
