// Tiny and odd sizes, where corruption is rare and so escapes a fixed list: counts drawn afresh in each run from 0 to
// 4,097, every dtype and op, offsets of 0 to 15 elements, guard bytes on both sides of every buffer, inputs compared
// afterwards. collectives_sweep_test takes all of them, and takes longer.
#include <gtest/gtest.h>

#include "tests/support/collectives_table.h"

namespace shardcomm::testing {
namespace {

constexpr size_t kMostCount = 4097;

struct Place {
  RankMode mode;
  Memory memory;
  int ranks;
};

void PrintTo(const Place& place, std::ostream* out) {
  *out << name(place.mode) << ' ' << place.memory.name << ' ' << place.ranks;
}

std::vector<size_t> draw_counts(uint64_t seed) {
  std::vector<size_t> counts;
  for (uint64_t i = 0; i < 10; ++i) {
    const uint64_t bits = random_bits(seed, i);
    counts.push_back((bits >> 8) % ((bits & 1) == 0 ? 70 : kMostCount + 1));  // half of them tiny
  }
  return counts;
}

class Sample : public ::testing::TestWithParam<Place> {};

TEST_P(Sample, IsExactAndStaysInside) {
  const Place& place = GetParam();
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  const Reference reference = make_reference(test_seed(), place.ranks, kMostCount);
  run_ranks(place.ranks, place.mode, [&](RankContext& rank) {
    Communicator comm = rank.communicator(place.memory.options);
    for (uint64_t round = 0; round < 2; ++round) {
      const TableSpan span{.counts = draw_counts(test_seed() + round), .beyond_inline = false};
      CollectiveTable table(comm, place.memory, reference, span);
      table.run(StreamRef::caller());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Places, Sample,
                         ::testing::Values(Place{RankMode::kThreads, kAttachedMemory, 2},
                                           Place{RankMode::kProcesses, kWindowMemory, 3},
                                           Place{RankMode::kProcesses, kPoolMemory, 3},
                                           Place{RankMode::kProcesses, kAttachedMemory, 2},
                                           Place{RankMode::kProcesses, kStagedMemory, 3}),
                         [](const auto& info) {
                           return std::string(name(info.param.mode)) + "_" + std::string(info.param.memory.name) + "_" +
                                  std::to_string(info.param.ranks);
                         });

}  // namespace
}  // namespace shardcomm::testing
