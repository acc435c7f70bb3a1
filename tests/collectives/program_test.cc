// Random programs of all operations on several communicators and streams against a sequential model: what operations
// leave in memory is what later ones read. Labelled slow with --full, which runs 10,000 steps on each place.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/collectives_table.h"
#include "tests/support/program_run.h"

namespace shardcomm::testing {
namespace {

size_t steps_per_program = 1'000;

class Programs : public ::testing::TestWithParam<std::tuple<RankMode, Memory, int>> {};

TEST_P(Programs, LeaveWhatTheModelLeaves) {
  const auto& [mode, memory, ranks] = GetParam();
  const uint64_t seed = test_seed() + static_cast<uint64_t>(ranks);
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  run_ranks(ranks, mode,
            [&, memory = memory](RankContext& rank) { ProgramRun(rank, seed, memory.options).run(steps_per_program); },
            {.deadline = std::chrono::seconds(280) * kPatience});
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<RankMode, Memory, int>>& info) {
  const auto& [mode, memory, ranks] = info.param;
  return std::string(name(mode)) + "_" + std::string(memory.name) + "_" + std::to_string(ranks);
}

INSTANTIATE_TEST_SUITE_P(Threads, Programs,
                         ::testing::Combine(::testing::Values(RankMode::kThreads), ::testing::Values(kAttachedMemory),
                                            ::testing::Values(2, 3, 5)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Processes, Programs,
                         ::testing::Combine(::testing::Values(RankMode::kProcesses),
                                            ::testing::Values(kAttachedMemory, kSmallRing), ::testing::Values(2, 3, 5)),
                         name_of);

}  // namespace
}  // namespace shardcomm::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--full") == 0) shardcomm::testing::steps_per_program = 10'000;
  }
  return RUN_ALL_TESTS();
}
