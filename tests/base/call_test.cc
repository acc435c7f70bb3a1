// Calls as ranks compare them and people read them, and the table of collectives.
#include "base/call.h"

#include <gtest/gtest.h>

#include <string>

#include <set>

namespace shardcomm {
namespace {

TEST(Collectives, HaveOneNameEachThatParsesBack) {
  std::set<std::string_view> names;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    EXPECT_TRUE(names.insert(name(collective)).second) << name(collective);
    EXPECT_EQ(parse_collective(name(collective)), collective);
    EXPECT_EQ(reduces(collective), traits(collective).reduces());
  }
  EXPECT_EQ(name(static_cast<Collective>(kCollectiveCount)), "unknown");
  EXPECT_FALSE(parse_collective("unknown"));
}

struct Multiples {
  Collective collective;
  size_t whole, announced;  // of 4 ranks, in multiples of the call's count
};

TEST(Collectives, KnowTheirWholeAndWhatOneRankAnnounces) {
  constexpr size_t kRanks = 4;
  constexpr Multiples kExpected[] = {
      {Collective::kAllGather, 4, 1},         {Collective::kReduceScatter, 4, 3},  {Collective::kAllReduce, 1, 1},
      {Collective::kBroadcast, 1, 1},         {Collective::kAllToAll, 4, 3},       {Collective::kAllGatherMany, 4, 1},
      {Collective::kReduceScatterMany, 4, 3}, {Collective::kReduceScatterV, 1, 1}, {Collective::kGather, 4, 1},
      {Collective::kScatter, 4, 3},           {Collective::kReduce, 1, 1},         {Collective::kAllToAllV, 1, 1},
      {Collective::kAllReduceMany, 1, 1},     {Collective::kBroadcastMany, 1, 1},
  };
  for (const Multiples& expected : kExpected) {
    const CollectiveTraits& has = traits(expected.collective);
    EXPECT_EQ(has.whole(kRanks), expected.whole) << has.name;
    EXPECT_EQ(has.announced(kRanks), expected.announced) << has.name;
    EXPECT_EQ(has.whole(1), 1u) << has.name;
    EXPECT_EQ(has.announced(1), 1u) << has.name;
  }
}

TEST(CallText, NamesWhatRanksMustAgreeOn) {
  const Call reduce{.collective = Collective::kReduceScatter, .dtype = DType::kBF16, .op = ReduceOp::kMax, .count = 3};
  EXPECT_EQ(text(reduce, "h.3"), "reduce_scatter bf16 3 max 'h.3'");
  const Call ragged{.collective = Collective::kAllGatherV, .dtype = DType::kF32, .count = 600};
  EXPECT_EQ(text(ragged, {}), "all_gather_v f32 600");
  const Call rooted{.collective = Collective::kBroadcast, .dtype = DType::kU8, .root_or_items = 2, .count = 0};
  EXPECT_EQ(text(rooted, {}), "broadcast u8 0 from root 2");
  const Call many{.collective = Collective::kReduceScatterMany, .op = ReduceOp::kMax, .root_or_items = 2, .count = 24};
  EXPECT_EQ(text(many, {}), "reduce_scatter_many 24 in 2 items");
  EXPECT_EQ(text({.collective = Collective::kBarrier}, "step"), "barrier 'step'");
  EXPECT_EQ(text({.kind = CallKind::kAgreement}, "allocate_window w"), "agreement 'allocate_window w'");
  const Call mosaic{.collective = Collective::kAllGather, .kind = CallKind::kMosaic, .count = 4096};
  EXPECT_EQ(text(mosaic, "w"), "all_gather_mosaic u8 4096 'w'");
}

TEST(CallText, SaysWhereTheRootIs) {
  const Call gather{.collective = Collective::kGather, .dtype = DType::kF32, .root_or_items = 2, .count = 1024};
  EXPECT_EQ(text(gather, {}), "gather f32 1024 to root 2");
  const Call scatter{.collective = Collective::kScatter, .dtype = DType::kF32, .root_or_items = 0, .count = 7};
  EXPECT_EQ(text(scatter, {}), "scatter f32 7 from root 0");
  const Call reduce{
      .collective = Collective::kReduce, .dtype = DType::kF64, .op = ReduceOp::kMin, .root_or_items = 1, .count = 3};
  EXPECT_EQ(text(reduce, "norm"), "reduce f64 3 min to root 1 'norm'");
  EXPECT_EQ(text({.collective = Collective::kAllToAllV, .dtype = DType::kU8}, {}), "all_to_all_v u8");
  // Of many tensors it has another place than of one, and as many values as a rank may have there.
  for (const Rank root : {0, 1, 255, 256, 1023, kMostRootOfMany}) {
    Call many{.collective = Collective::kBroadcastMany, .root_or_items = 5000, .count = 24};
    set_root(many, root);
    EXPECT_EQ(root_of(many), root);
    EXPECT_EQ(text(many, {}), "broadcast_many 24 in 5000 items from root " + std::to_string(root));
  }
}

TEST(CallText, ToleratesDamagedRecords) {
  const Call damaged{.collective = static_cast<Collective>(200), .dtype = static_cast<DType>(200), .count = 7};
  EXPECT_EQ(text(damaged, {}), "unknown");
}

TEST(Calls, OfDifferentKindsDiffer) {
  const Call copied{.collective = Collective::kAllGather, .count = 4096};
  Call mosaic = copied;
  EXPECT_EQ(copied, mosaic);
  mosaic.kind = CallKind::kMosaic;
  EXPECT_NE(copied, mosaic);
}

}  // namespace
}  // namespace shardcomm
