// Ranks of which some are threads of one process and others are not: plain pointers to some peers, mappings, attach or
// the staging ring to the others, in one operation.
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/collectives_table.h"

namespace shardcomm::testing {
namespace {

constexpr int kThreadsEach = 2;
const std::vector<size_t> kCounts = {0, 1, 17, 1000};

// Runs `function` as ranks 2p and 2p + 1 of process p.
void run_hybrid(int processes, std::string_view options, const std::function<void(Communicator&)>& function) {
  run_ranks(processes, RankMode::kProcesses, [&](RankContext& process) {
    const std::string uri = process.next_store_uri();
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreadsEach; ++t) {
      threads.emplace_back([&, rank = process.rank() * kThreadsEach + t] {
        try {
          Result<std::unique_ptr<Store>> store = open_store(uri);
          ASSERT_TRUE(store.ok()) << store.status().to_string();
          const std::string text = "timeout_ms=20000,init_timeout_ms=20000," + std::string(options);
          Result<Options> parsed = Options::parse(text);
          ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
          Result<Communicator> comm = Communicator::create(
              **store, {.rank = rank, .size = process.size() * kThreadsEach, .device = {}}, *parsed);
          ASSERT_TRUE(comm.ok()) << comm.status().to_string();
          function(*comm);
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(Hybrid, GivesExactBits) {
  const Reference reference = make_reference(test_seed(), 4, kCounts.back());
  for (const Memory& memory : {kWindowMemory, kPoolMemory, kPoolAndStaged, kSmallPieces, kSmallRing, kMixedMemory}) {
    run_hybrid(2, "spin_us=5," + std::string(memory.options), [&](Communicator& comm) {
      const std::vector<DType> dtypes = {DType::kU8, DType::kBF16, DType::kF32, DType::kF64};
      CollectiveTable table(comm, memory, reference, {.counts = kCounts, .dtypes = dtypes});
      table.run(StreamRef::caller());
      HostStream stream = HostStream::create("hybrid").value();
      table.run(stream.ref());
    });
  }
}

}  // namespace
}  // namespace shardcomm::testing
