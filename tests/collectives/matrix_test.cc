// Every collective on every number of ranks, kind of rank and kind of memory, each dtype, op, count, in place and not,
// synchronous and asynchronous, bit for bit. collectives_sweep_test does more of the same, and takes longer.
#include <gtest/gtest.h>

#include <map>

#include "tests/support/collectives_table.h"

namespace shardcomm::testing {
namespace {

struct Place {
  RankMode mode;
  Memory memory;
};

void PrintTo(const Place& place, std::ostream* out) { *out << name(place.mode) << ' ' << place.memory.name; }

const std::vector<size_t> kCounts = {0, 1, 3, 17, 1000, 4099};

const Reference& reference_of(int ranks) {
  static std::map<int, Reference> made;
  const auto found = made.find(ranks);
  if (found != made.end()) return found->second;
  return made.emplace(ranks, make_reference(test_seed(), ranks, kCounts.back())).first->second;
}

class Matrix : public ::testing::TestWithParam<std::tuple<Place, int>> {};

TEST_P(Matrix, GivesExactBits) {
  const auto& [place, ranks] = GetParam();
  const Reference& reference = reference_of(ranks);
  run_ranks(ranks, place.mode, [&, memory = place.memory](RankContext& rank) {
    Communicator comm = rank.communicator(memory.options);
    Result<HostStream> stream = HostStream::create("collectives");
    ASSERT_TRUE(stream.ok()) << stream.status().to_string();
    CollectiveTable table(comm, memory, reference, {.counts = kCounts});
    table.run(StreamRef::caller());
    table.run_refusals(StreamRef::caller());
    table.run(stream->ref());
    table.run_refusals(stream->ref());
    EXPECT_TRUE(comm.health().ok()) << comm.health().to_string();
  });
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Place, int>>& info) {
  const auto& [place, ranks] = info.param;
  return std::string(name(place.mode)) + "_" + std::string(place.memory.name) + "_" + std::to_string(ranks);
}

INSTANTIATE_TEST_SUITE_P(Threads, Matrix,
                         ::testing::Combine(::testing::Values(Place{RankMode::kThreads, kAttachedMemory},
                                                              Place{RankMode::kThreads, kWindowMemory},
                                                              Place{RankMode::kThreads, kPoolMemory}),
                                            ::testing::Values(1, 2, 3, 4, 8)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(
    Processes, Matrix,
    ::testing::Combine(
        ::testing::Values(Place{RankMode::kProcesses, kWindowMemory}, Place{RankMode::kProcesses, kPoolMemory},
                          Place{RankMode::kProcesses, kPoolAndStaged}, Place{RankMode::kProcesses, kPoolAndAttached},
                          Place{RankMode::kProcesses, kAttachedMemory}, Place{RankMode::kProcesses, kAttachedGathers},
                          Place{RankMode::kProcesses, kSmallPieces}, Place{RankMode::kProcesses, kStagedMemory},
                          Place{RankMode::kProcesses, kSmallRing}, Place{RankMode::kProcesses, kMixedMemory},
                          Place{RankMode::kProcesses, kMixedAttached}),
        ::testing::Values(1, 2, 3, 4, 8)),
    name_of);

}  // namespace
}  // namespace shardcomm::testing
