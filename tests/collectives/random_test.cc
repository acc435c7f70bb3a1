// Random operations in random order at random moments, many in flight, on two streams and the caller's thread: all
// ranks draw the same operations from one seed, each its own delays.
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/collectives_table.h"
#include "tests/support/random_calls.h"

namespace shardcomm::testing {
namespace {

void require(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.to_string());
}

void run_random(RankContext& rank, const Memory& memory, uint64_t seed, int operations) {
  Communicator comm = rank.communicator(memory.options);
  std::optional<Window> window;
  if (memory.even_ranks_use_window) {
    window = comm.allocate_window(RandomCalls::window_bytes(comm.size()), "random").value();
  }
  std::vector<HostStream> streams;
  for (const char* name : {"even", "odd"}) streams.push_back(HostStream::create(name).value());
  RandomCalls calls(comm, seed, window ? window->data() : nullptr);
  for (int i = 0; i < operations; ++i) {
    const size_t place = calls.draw().below(8);
    const StreamRef on = place == 0 ? StreamRef::caller() : streams[place % 2].ref();
    require(calls.one_more(on));
    // Delays of one's own: of this thread, of a stream, or none.
    const uint64_t mine = random_bits(seed, static_cast<uint64_t>(rank.rank()) + 77, static_cast<uint64_t>(i));
    const auto nap = std::chrono::microseconds(mine >> 8 & 511);
    if (mine % 16 == 0) std::this_thread::sleep_for(nap);
    if (mine % 16 == 1) {
      ASSERT_TRUE(streams[mine >> 32 & 1].ref().enqueue([nap] { std::this_thread::sleep_for(nap); }).ok());
    }
    require(calls.settle(RandomCalls::kMostInFlight));
  }
  require(calls.settle(0));
}

class Random : public ::testing::TestWithParam<std::tuple<RankMode, Memory, int>> {};

TEST_P(Random, OperationsInFlightDoNotDisturbEachOther) {
  const auto& [mode, memory, ranks] = GetParam();
  const uint64_t seed = test_seed() + static_cast<uint64_t>(ranks);
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  run_ranks(ranks, mode, [&, memory = memory](RankContext& rank) { run_random(rank, memory, seed, 400); });
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<RankMode, Memory, int>>& info) {
  const auto& [mode, memory, ranks] = info.param;
  return std::string(name(mode)) + "_" + std::string(memory.name) + "_" + std::to_string(ranks);
}

INSTANTIATE_TEST_SUITE_P(Threads, Random,
                         ::testing::Combine(::testing::Values(RankMode::kThreads), ::testing::Values(kAttachedMemory),
                                            ::testing::Values(2, 3, 4)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Processes, Random,
                         ::testing::Combine(::testing::Values(RankMode::kProcesses),
                                            ::testing::Values(kWindowMemory, kAttachedMemory, kAttachedGathers,
                                                              kSmallPieces, kStagedMemory, kSmallRing),
                                            ::testing::Values(2, 3, 4)),
                         name_of);

}  // namespace
}  // namespace shardcomm::testing
