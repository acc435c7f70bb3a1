// The registry's rows, and the choice among them, by values alone.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "collectives/collectives.h"

namespace shardcomm {
namespace {

constexpr int kRanks = 4;
constexpr size_t kSmall = 64, kLarge = size_t{16} << 20;

Chooser chooser(std::string_view allowed = {}, TransportKind transport = TransportKind::kMapped) {
  Result<Chooser> made = Chooser::create({Topology::single_node(kRanks, kRanks), {}}, transport, allowed);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return std::move(made).value();
}

Workload workload(Collective collective, size_t bytes, SourceKind memory = SourceKind::kMapped) {
  const CollectiveTraits& has = traits(collective);
  return {collective, has.whole(kRanks) * bytes, has.announced(kRanks) * bytes, memory};
}

std::string chosen(Chooser& chooser, const Workload& workload) { return name(chooser.choose(workload)); }

TEST(Registry, HasRowsOfEveryCollectiveUnderDistinctNames) {
  std::set<std::string> names;
  std::set<Collective> collectives;
  for (const Algorithm& row : algorithms()) {
    EXPECT_TRUE(names.insert(name(row)).second) << name(row);
    collectives.insert(row.collective);
  }
  EXPECT_EQ(collectives.size(), static_cast<size_t>(kCollectiveCount));
  EXPECT_TRUE(names.contains("barrier_inline"));
  EXPECT_TRUE(names.contains("reduce_scatter_many_direct"));
  EXPECT_TRUE(names.contains("all_gather_mosaic"));
  EXPECT_TRUE(names.contains("gather_inline") && names.contains("gather_direct"));
  EXPECT_TRUE(names.contains("all_to_all_v_pairs"));
  EXPECT_FALSE(names.contains("all_to_all_v_inline"));
  EXPECT_FALSE(names.contains("barrier_direct"));
  EXPECT_FALSE(names.contains("all_reduce_mosaic"));
}

TEST(Chooser, TakesTheCheapestRow) {
  Chooser any = chooser();
  EXPECT_EQ(chosen(any, workload(Collective::kAllGather, kSmall)), "all_gather_inline");
  EXPECT_EQ(chosen(any, workload(Collective::kAllGather, kLarge)), "all_gather_direct");
  EXPECT_EQ(chosen(any, workload(Collective::kAllGather, kLarge, SourceKind::kMosaic)), "all_gather_mosaic");
  EXPECT_EQ(chosen(any, workload(Collective::kBarrier, 0)), "barrier_inline");
}

// The root of a reduction reads as much as all ranks have, and alone: it takes the message sooner than an all_reduce,
// whose ranks share that work.
TEST(Chooser, CountsWhatTheRootReads) {
  Chooser any = chooser();
  for (const Collective collective : {Collective::kGather, Collective::kScatter, Collective::kReduce}) {
    EXPECT_EQ(chosen(any, workload(collective, kSmall)), std::string(name(collective)) + "_inline");
    EXPECT_EQ(chosen(any, workload(collective, kLarge)), std::string(name(collective)) + "_direct");
  }
  const double reduce_us = any.explain(workload(Collective::kReduce, kLarge)).predicted_us;
  const double broadcast_us = any.explain(workload(Collective::kBroadcast, kLarge)).predicted_us;
  EXPECT_GT(reduce_us, 2 * broadcast_us);
}

TEST(Chooser, AllowsEnginesAndRowsByName) {
  for (const Algorithm& row : algorithms()) {
    const SourceKind memory = row.engine->name == "mosaic" ? SourceKind::kMosaic : SourceKind::kMapped;
    const Workload small = workload(row.collective, traits(row.collective).has_elements ? kSmall : 0, memory);
    Chooser by_engine = chooser(row.engine->name), by_name = chooser("barrier_inline," + name(row));
    EXPECT_EQ(chosen(by_engine, small), name(row));
    EXPECT_EQ(chosen(by_name, small), name(row));
  }
}

TEST(Chooser, FallsBackWhereNothingAllowedCanRun) {
  Chooser inlined = chooser("inline");
  EXPECT_EQ(chosen(inlined, workload(Collective::kAllGather, kLarge)), "all_gather_direct");
  Chooser direct = chooser("direct");
  EXPECT_EQ(chosen(direct, workload(Collective::kBarrier, 0)), "barrier_inline");
}

TEST(Chooser, RefusesUnknownNamesAndListsTheKnownOnes) {
  const auto refused = Chooser::create({Topology::single_node(kRanks, kRanks), {}}, TransportKind::kMapped, "fast");
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  for (const std::string_view word : {"'fast'", "inline, direct, mosaic, pairs, ", "all_to_all_direct"})
    EXPECT_NE(refused.status().message().find(word), std::string::npos) << refused.status().to_string();
}

// A row that needs mapped memory is not a candidate on another transport; announcements work on every one. What ranks
// exchange with counts of their own may always be too long for an announcement.
TEST(Chooser, OffersOnlyRowsThatTheTransportCanRun) {
  Chooser on_puts = chooser({}, TransportKind::kPut);
  for (int c = 0; c < kCollectiveCount; ++c) {
    const auto collective = static_cast<Collective>(c);
    const std::string row = std::string(name(collective)) + "_inline";
    if (traits(collective).has_own_counts()) continue;
    EXPECT_EQ(chosen(on_puts, workload(collective, 0)), row);
    EXPECT_EQ(on_puts.explain(workload(collective, 0)).algorithm, row);
  }
  const Workload large = workload(Collective::kAllGather, kLarge);
  EXPECT_EQ(on_puts.choose(large).engine->name, "none");
  EXPECT_EQ(on_puts.explain(large).algorithm, "none");
  EXPECT_TRUE(std::isinf(on_puts.explain(large).predicted_us));
}

}  // namespace
}  // namespace shardcomm
