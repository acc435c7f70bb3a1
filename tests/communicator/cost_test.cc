// The memory that communicators cost, and whether they give it back. communicator_test counts descriptors, threads and
// mappings.
#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

size_t resident_bytes() {
  size_t pages = 0;
  std::ifstream file("/proc/self/statm");
  file >> pages >> pages;
  return pages * 4096;
}

TEST(MemoryCost, OneRankNeedsHardlyAny) {
  run_ranks(1, RankMode::kProcesses, [](RankContext&) {
    constexpr size_t kMany = 64;
    const auto make = [](size_t i) {
      std::unique_ptr<Store> store = open_store("local://alone-" + std::to_string(i)).value();
      Result<Communicator> made = Communicator::create(*store, {.rank = 0, .size = 1, .device = {}}, Options());
      EXPECT_TRUE(made.ok()) << made.status().to_string();
      float value = 3, sum = 0;
      EXPECT_TRUE(outcome(made->all_reduce({&value, &sum, 1, DType::kF32}, StreamRef::caller())).ok());
      return std::move(made).value();
    };
    const Communicator first = make(0);
    const Resources before = Resources::now();
    const size_t resident_before = resident_bytes();
    std::vector<Communicator> many;
    for (size_t i = 0; i < kMany; ++i) many.push_back(make(i + 1));
    const Resources after = Resources::now();
    EXPECT_EQ(after.threads, before.threads);
    EXPECT_LE(after.descriptors, before.descriptors + kMany);  // of the flight recorder, for others to find it
    if (kPatience == 1) {                                      // sanitizers keep memory of their own
      EXPECT_LT((resident_bytes() - resident_before) / kMany, size_t{64} << 10) << "bytes of memory for each";
    }
  });
}

TEST(MemoryCost, AThousandLivesLeaveItAsItWas) {
  const std::set<std::string> before = files_in("/dev/shm");
  run_ranks(2, RankMode::kProcesses, [](RankContext& rank) {
    Result<std::unique_ptr<Store>> store = open_store(rank.next_store_uri());
    ASSERT_TRUE(store.ok());
    Result<Options> options = Options::parse("timeout_ms=20000");
    Resources settled{};
    size_t resident = 0;
    constexpr int kLives = 1'000;
    for (int i = 0; i < kLives; ++i) {
      Result<Communicator> comm =
          Communicator::create(**store, {.rank = rank.rank(), .size = rank.size(), .device = {}}, *options);
      ASSERT_TRUE(comm.ok()) << "after " << i << ": " << comm.status().to_string();
      std::vector<float> in(40'000, 1.0f), out(40'000);
      ASSERT_TRUE(outcome(comm->all_reduce({in.data(), out.data(), in.size(), DType::kF32}, StreamRef::caller())).ok());
      if (i == kLives / 5) {
        settled = Resources::now();
        resident = resident_bytes();
      }
      if (i + 1 == kLives) {
        const Resources now = Resources::now();
        EXPECT_EQ(now.descriptors, settled.descriptors);
        EXPECT_EQ(now.threads, settled.threads);
        EXPECT_EQ(now.shared_mappings, settled.shared_mappings);
        if (kPatience == 1) {
          EXPECT_LT(resident_bytes(), resident + (size_t{2} << 20)) << "for 800 lives";
        }
      }
      ASSERT_TRUE(outcome(comm->barrier(StreamRef::caller())).ok());
    }
  });
  EXPECT_EQ(files_in("/dev/shm"), before);
}

}  // namespace
}  // namespace shardcomm::testing
