// split: colors, keys, those who take no part, splits of splits, and the parent's life beside its children.
#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

class Split : public ::testing::TestWithParam<RankMode> {};

// The parent ranks of a child's members, in the child's order.
std::vector<int32_t> members_of(Communicator& child, Rank parent_rank) {
  std::vector<int32_t> members(static_cast<size_t>(child.size()), -1);
  const int32_t mine = parent_rank;
  const Status status = outcome(child.all_gather({&mine, members.data(), 1, DType::kI32}, StreamRef::caller()));
  EXPECT_TRUE(status.ok()) << status.to_string();
  return members;
}

TEST_P(Split, GroupsByColor) {
  run_ranks(5, GetParam(), [](RankContext& rank) {
    Communicator parent = rank.communicator();
    Result<std::optional<Communicator>> child = parent.split(rank.rank() % 2 == 0 ? 7 : 1'000'000, 0);
    ASSERT_TRUE(child.ok()) << child.status().to_string();
    ASSERT_TRUE(child->has_value());
    EXPECT_EQ((*child)->rank(), rank.rank() / 2);
    const std::vector<int32_t> expected = rank.rank() % 2 == 0 ? std::vector{0, 2, 4} : std::vector{1, 3};
    EXPECT_EQ(members_of(**child, rank.rank()), expected);
    EXPECT_TRUE(outcome(parent.barrier(StreamRef::caller())).ok());
  });
}

TEST_P(Split, OrdersByKeyThenRank) {
  run_ranks(4, GetParam(), [](RankContext& rank) {
    Communicator parent = rank.communicator();
    const int keys[] = {5, -3, 5, INT32_MIN};
    Result<std::optional<Communicator>> child = parent.split(0, keys[rank.rank()]);
    ASSERT_TRUE(child.ok()) << child.status().to_string();
    EXPECT_EQ(members_of(**child, rank.rank()), (std::vector{3, 1, 0, 2}));
  });
}

TEST_P(Split, LeavesOutThoseWithoutColor) {
  run_ranks(4, GetParam(), [](RankContext& rank) {
    Communicator parent = rank.communicator();
    const bool takes_part = rank.rank() == 1 || rank.rank() == 3;
    Result<std::optional<Communicator>> child = parent.split(takes_part ? 0 : -1 - rank.rank(), 0);
    ASSERT_TRUE(child.ok()) << child.status().to_string();
    ASSERT_EQ(child->has_value(), takes_part);
    if (takes_part) {
      EXPECT_EQ(members_of(**child, rank.rank()), (std::vector{1, 3}));
    }
    Result<std::optional<Communicator>> nobody = parent.split(-5, 0);
    ASSERT_TRUE(nobody.ok()) << nobody.status().to_string();
    EXPECT_FALSE(nobody->has_value());
    EXPECT_TRUE(outcome(parent.barrier(StreamRef::caller())).ok());
  });
}

TEST_P(Split, MayBeSplitAgain) {
  run_ranks(6, GetParam(), [](RankContext& rank) {
    Communicator world = rank.communicator();
    std::optional<Communicator> half = world.split(rank.rank() / 3, 0).value();
    ASSERT_TRUE(half.has_value());
    std::optional<Communicator> third = half->split(half->rank() == 0 ? -1 : 2, -half->rank()).value();
    ASSERT_EQ(third.has_value(), rank.rank() % 3 != 0);
    if (third) {
      const int32_t last = rank.rank() / 3 * 3 + 2;
      EXPECT_EQ(members_of(*third, rank.rank()), (std::vector{last, last - 1}));
      // Windows and large operations in the grandchild.
      Window window = third->allocate_window(1 << 20, "grandchild").value();
      auto* data = reinterpret_cast<float*>(window.data());
      std::fill_n(data, 100'000, static_cast<float>(third->rank() + 1));
      ASSERT_TRUE(outcome(third->all_reduce({data, data, 100'000, DType::kF32}, StreamRef::caller())).ok());
      EXPECT_EQ(data[99'999], 3.0f);
    }
    std::optional<Communicator> alone = world.split(rank.rank(), 0).value();
    ASSERT_TRUE(alone.has_value());
    EXPECT_EQ(alone->size(), 1);
    EXPECT_EQ(members_of(*alone, rank.rank()), std::vector{rank.rank()});
  });
}

TEST_P(Split, ParentAndChildrenWorkAtTheSameTime) {
  run_ranks(4, GetParam(), [](RankContext& rank) {
    Communicator parent = rank.communicator();
    std::optional<Communicator> rows = parent.split(rank.rank() / 2, 0).value();
    std::optional<Communicator> columns = parent.split(rank.rank() % 2, 0).value();
    const auto use = [&](Communicator& comm, int rounds) {
      std::vector<float> in(20'000, 1.0f), out(20'000);
      for (int i = 0; i < rounds; ++i) {
        const size_t count = i % 3 == 0 ? in.size() : 5;
        ASSERT_TRUE(outcome(comm.all_reduce({in.data(), out.data(), count, DType::kF32}, StreamRef::caller())).ok());
        ASSERT_EQ(out[count - 1], static_cast<float>(comm.size()));
      }
    };
    std::thread row_thread([&] { use(*rows, 60); });
    std::thread column_thread([&] { use(*columns, 40); });
    use(parent, 50);
    row_thread.join();
    column_thread.join();
  });
}

// Neither needs the other to live.
TEST_P(Split, ChildrenOutliveTheirParent) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    std::optional<Communicator> child;
    {
      Communicator parent = rank.communicator();
      child = parent.split(0, -rank.rank()).value();
      { std::optional<Communicator> short_lived = parent.split(0, 0).value(); }
      EXPECT_TRUE(outcome(parent.barrier(StreamRef::caller())).ok());
    }
    for (int i = 0; i < 10; ++i) EXPECT_EQ(members_of(*child, rank.rank()), (std::vector{2, 1, 0}));
  });
}

TEST_P(Split, AFailedChildLeavesItsParentAlone) {
  run_ranks(4, GetParam(), [](RankContext& rank) {
    Communicator parent = rank.communicator();
    std::optional<Communicator> child = parent.split(rank.rank() % 2, 0).value();
    if (rank.rank() == 0) child->abort("the even ones");
    const Status status = outcome(child->barrier(StreamRef::caller()));
    if (rank.rank() % 2 == 0) {
      EXPECT_TRUE(failed_with(status, Code::kAborted, {"the even ones"}));
    } else {
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    EXPECT_TRUE(outcome(parent.barrier(StreamRef::caller())).ok());
    EXPECT_TRUE(parent.health().ok());
    std::optional<Communicator> again = parent.split(0, 0).value();
    EXPECT_EQ(members_of(*again, rank.rank()), (std::vector{0, 1, 2, 3}));
  });
}

// In the order of the calls, behind what is enqueued already.
TEST_P(Split, WaitsForOperationsBeforeIt) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator parent = rank.communicator();
    HostStream stream = make_stream();
    uint64_t value = 1;
    ASSERT_TRUE(stream.ref().enqueue([] { std::this_thread::sleep_for(20ms); }).ok());
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(parent.all_reduce({&value, &value, 1, DType::kU64}, stream.ref()).ok());
    std::optional<Communicator> child = parent.split(0, 0).value();
    Window window = parent.allocate_window(64, "w").value();
    ASSERT_TRUE(stream.ref().synchronize(Clock::now() + 10s).ok());
    EXPECT_EQ(value, 3'486'784'401u);
    EXPECT_EQ(members_of(*child, rank.rank()), (std::vector{0, 1, 2}));
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, Split, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace shardcomm::testing
