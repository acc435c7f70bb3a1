// Communicators of some ranks, made without the others.
#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

class Subgroup : public ::testing::TestWithParam<RankMode> {};

float sum_over(Communicator& comm, float mine) {
  float sum = 0;
  EXPECT_TRUE(outcome(comm.all_reduce({&mine, &sum, 1, DType::kF32}, StreamRef::caller())).ok());
  return sum;
}

TEST_P(Subgroup, IsMadeByItsRanksAloneInTheirOrder) {
  run_ranks(4, GetParam(), [](RankContext& rank) {
    Communicator world = rank.communicator();
    const Rank members[] = {3, 1};
    if (rank.rank() % 2 == 1) {
      Result<Communicator> odd = world.subgroup(members, "odd");
      ASSERT_TRUE(odd.ok()) << odd.status().to_string();
      EXPECT_EQ(odd->size(), 2);
      EXPECT_EQ(odd->rank(), rank.rank() == 3 ? 0 : 1);
      EXPECT_EQ(sum_over(*odd.operator->(), static_cast<float>(rank.rank())), 4);
      Result<Window> window = odd.value().allocate_window(4096, "of the subgroup");
      EXPECT_TRUE(window.ok());
    }
    EXPECT_EQ(sum_over(world, 1), 4);
  });
}

TEST_P(Subgroup, OneRankIsAGroup) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator world = rank.communicator();
    const Rank alone[] = {rank.rank()};
    Result<Communicator> own = world.subgroup(alone);
    ASSERT_TRUE(own.ok()) << own.status().to_string();
    EXPECT_EQ(sum_over(own.value(), 3), 3);
  });
}

TEST_P(Subgroup, TwoAreMadeAtTheSameTimeOnThreadsOfTheirOwn) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator world = rank.communicator();
    const auto make = [&](std::vector<Rank> ranks, std::string_view label) {
      if (std::find(ranks.begin(), ranks.end(), rank.rank()) == ranks.end()) return;
      Result<Communicator> group = world.subgroup(ranks, label);
      ASSERT_TRUE(group.ok()) << group.status().to_string();
      EXPECT_EQ(sum_over(group.value(), 1), static_cast<float>(ranks.size()));
    };
    std::thread first([&] { make({0, 1, 2}, "all"); }), second([&] { make({2, 0}, "outer"); });
    first.join();
    second.join();
    EXPECT_EQ(sum_over(world, 1), 3);
  });
}

TEST_P(Subgroup, ListsThatDifferAreNamed) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator world = rank.communicator("init_timeout_ms=5000");
    if (rank.rank() == 2) return;
    const std::vector<Rank> ranks = rank.rank() == 0 ? std::vector<Rank>{0, 1} : std::vector<Rank>{0, 1, 2};
    const Status status = world.subgroup(ranks, "g").status();
    EXPECT_TRUE(
        failed_with(status, Code::kFailedPrecondition, {"rank 0 names the ranks 0,1", "rank 1 the ranks 0,1,2"}));
    EXPECT_TRUE(world.health().ok());
  });
}

TEST_P(Subgroup, AMemberThatNeverComesEndsItAndNotTheParent) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator world = rank.communicator("init_timeout_ms=400");
    const Rank both[] = {0, 1};
    if (rank.rank() == 0) {
      const Status status = world.subgroup(both, "late").status();
      EXPECT_TRUE(failed_with(status, Code::kTimedOut, {"subgroup 'late' of ranks 0,1", "rank 1"}));
    } else {
      std::this_thread::sleep_for(600ms);
    }
    EXPECT_EQ(sum_over(world, 1), 2);
  });
}

TEST_P(Subgroup, WrongListsAreRefused) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator world = rank.communicator();
    const auto refused = [&](std::vector<Rank> ranks, std::string_view words) {
      EXPECT_TRUE(failed_with(world.subgroup(ranks).status(), Code::kInvalidArgument, {words}));
    };
    refused({0, 2}, "rank 2 is out of range");
    refused({0, 0, 1}, "name one rank twice");
    refused({1 - rank.rank()}, "is not one of the ranks");
    refused({}, "is not one of the ranks");
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, Subgroup, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace shardcomm::testing
