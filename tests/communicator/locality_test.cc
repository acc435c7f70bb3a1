// Which ranks are close to each other, on machines that hwloc is told of in place of this one, and what ranks make of
// it.
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <numeric>

#include "bootstrap/bootstrap.h"
#include "core/connection.h"
#include "core/locality.h"
#include "tests/bootstrap/meeting.h"
#include "tests/support/rank_group.h"

namespace shardcomm {
namespace {

using namespace shardcomm::testing;

// In place of this machine, for hwloc, as long as it lives.
class Described {
 public:
  explicit Described(const std::string& machine, const char* as = "HWLOC_SYNTHETIC") : as_(as) {
    setenv(as, machine.c_str(), 1);
  }
  ~Described() { unsetenv(as_); }
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;

 private:
  const char* as_;
};

std::string cores(std::initializer_list<int> list) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : list) CPU_SET(core, &set);
  return {reinterpret_cast<const char*>(&set), sizeof set};
}

using Sets = std::vector<std::string>;
using Domains = std::vector<int>;

// 2 packages, each a NUMA node, of 2 caches of 2 cores of 2 threads: cache 0 is above threads 0 to 3, node 0 above 0
// to 7.
constexpr const char* kTwoSockets = "package:2 [numa] l3:2 core:2 pu:2";

TEST(Locality, TakesLastLevelCachesAsDomains) {
  const Described machine(kTwoSockets);
  EXPECT_EQ(domains_of(Sets{cores({0, 1}), cores({2, 3}), cores({4}), cores({15})}), (Domains{0, 0, 1, 3}));
  EXPECT_EQ(domains_of(Sets{cores({12}), cores({0, 1, 2, 3}), cores({13, 14})}), (Domains{3, 0, 3}));
}

TEST(Locality, TakesNumaNodesWhereCachesDoNotTellRanksApart) {
  const Described machine(kTwoSockets);
  const Domains two_and_two = {0, 0, 1, 1};
  EXPECT_EQ(domains_of(Sets{cores({0}), cores({4}), cores({8}), cores({12})}), two_and_two) << "a cache each";
  EXPECT_EQ(domains_of(Sets{cores({3, 4}), cores({7}), cores({8}), cores({12})}), two_and_two) << "one on two caches";
  EXPECT_EQ(domains_of(Sets{cores({0, 1, 2, 3, 4, 5, 6, 7}), cores({0}), cores({8, 15})}), (Domains{0, 0, 1}));
}

TEST(Locality, TakesNumaNodesOfAMachineWithoutCaches) {
  const Described machine("package:2 [numa] core:2 pu:1");
  EXPECT_EQ(domains_of(Sets{cores({0}), cores({1}), cores({2}), cores({3})}), (Domains{0, 0, 1, 1}));
}

// Memory that is as near to all cores does not make one domain of them.
TEST(Locality, TakesTheSmallestNodesAroundTheCores) {
  const Described machine("[numa] package:2 [numa] core:2 pu:1");
  const Domains domains = domains_of(Sets{cores({0}), cores({1}), cores({2}), cores({3})});
  EXPECT_EQ(domains[0], domains[1]);
  EXPECT_EQ(domains[2], domains[3]);
  EXPECT_NE(domains[0], domains[2]);
}

TEST(Locality, FallsBackToOneDomainWithoutTopology) {
  const Described machine(kTwoSockets);
  const Domains one(3, 0);
  EXPECT_EQ(domains_of(Sets{cores({0}), cores({1}), cores({7, 8})}), one) << "a rank on both nodes";
  EXPECT_EQ(domains_of(Sets{cores({0}), cores({1}), cores({2})}), one) << "all share a cache";
  EXPECT_EQ(domains_of(Sets{cores({0, 8}), cores({0, 8}), cores({0, 8})}), one) << "all may run on the same cores";
  EXPECT_EQ(domains_of(Sets{cores({0}), cores({1}), cores({100})}), one) << "a core that this machine does not have";
  EXPECT_EQ(domains_of(Sets{cores({0}), cores({8}), ""}), one) << "a rank that does not know its cores";
  EXPECT_EQ(domains_of(Sets{cores({0}), cores({8}), cores({})}), one) << "a rank without cores";
  EXPECT_EQ(domains_of(Sets{cores({0}), cores({8}), "short"}), one);
  EXPECT_EQ(domains_of(Sets{cores({0}), cores({8})}), Domains(2, 0)) << "two ranks have one order only";
  EXPECT_EQ(domains_of(Sets{cores({0})}), Domains(1, 0));
}

TEST(Locality, FallsBackToOneDomainWhereTheMachineCannotBeRead) {
  const Sets sets = {cores({0}), cores({0}), cores({8})};
  const Described machine(kTwoSockets);
  EXPECT_EQ(domains_of(sets), (Domains{0, 0, 2}));
  const Described nothing("stop", "HWLOC_COMPONENTS");  // hwloc may use none of its ways of looking
  EXPECT_EQ(domains_of(sets), Domains(3, 0));
}

TEST(Locality, CountsTheCoresOfAllRanksOnce) {
  EXPECT_EQ(count_cores(Sets{cores({0, 1}), cores({1, 2}), "", cores({1000})}), 4);
  EXPECT_EQ(count_cores(Sets{""}), 1);
  EXPECT_GE(count_cores(Sets{usable_cores()}), 1);
}

// Two cores that this process may use; fewer where there are not as many.
std::vector<int> two_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> found;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return found;
  for (int core = 0; core < CPU_SETSIZE && found.size() < 2; ++core) {
    if (CPU_ISSET(core, &set)) found.push_back(core);
  }
  return found;
}

void bind_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  EXPECT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
}

// Ranks of two NUMA nodes in turn.
class LocalityOfTwoNodes : public ::testing::Test {
 protected:
  static constexpr int kRanks = 5;

  void SetUp() override {
    cores_ = two_cores();
    if (cores_.size() < 2) GTEST_SKIP() << "needs two usable cores";
    machine_.emplace("numa:2 core:1 pu:1(indexes=" + std::to_string(cores_[0]) + "," + std::to_string(cores_[1]) + ")");
  }
  void bind(Rank rank) const { bind_to(cores_[static_cast<size_t>(rank % 2)]); }

 private:
  std::vector<int> cores_;
  std::optional<Described> machine_;
};

TEST_F(LocalityOfTwoNodes, LetsRanksReadTheirOwnNodeFirst) {
  const std::vector<std::vector<Rank>> expected = {
      {0, 2, 4, 1, 3}, {1, 3, 0, 2, 4}, {2, 4, 0, 3, 1}, {3, 1, 2, 4, 0}, {4, 0, 2, 1, 3}};
  as_threads(kRanks, [&](Rank rank) {
    bind(rank);
    const auto store = join_or_fail("local://two-nodes", rank, kRanks, quick_options());
    const Exchange exchange = [&](std::string_view step, std::string_view blob) {
      return bootstrap::exchange(*store, step, rank, kRanks, blob, in(10s));
    };
    const auto connection =
        connect_ranks({.rank = rank, .size = kRanks, .device = {}}, quick_options(), in(10s), {.exchange = exchange});
    ASSERT_TRUE(connection.ok()) << connection.status().to_string();
    EXPECT_EQ(connection->reading_order, expected[static_cast<size_t>(rank)]) << "rank " << rank;
  });
}

// Element i of what `from` has for `to`.
int32_t element(Rank from, Rank to, size_t i) { return static_cast<int32_t>(i) * 97 + from * 7 + to; }

void gather_and_exchange(Communicator& comm) {
  constexpr size_t kCount = 30'001;
  const auto ranks = static_cast<size_t>(comm.size());
  std::vector<int32_t> in(kCount * ranks), out(kCount * ranks);
  for (Rank to = 0; to < comm.size(); ++to) {
    for (size_t i = 0; i < kCount; ++i) in[static_cast<size_t>(to) * kCount + i] = element(comm.rank(), to, i);
  }
  const auto check = [&](const Result<Work>& work, std::string_view what, const auto& expected) {
    ASSERT_TRUE(work.ok()) << what << ": " << work.status().to_string();
    for (Rank from = 0; from < comm.size(); ++from) {
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(out[static_cast<size_t>(from) * kCount + i], expected(from, i)) << what << " of rank " << from;
      }
    }
    std::fill(out.begin(), out.end(), -1);
  };
  check(comm.all_gather({in.data(), out.data(), kCount, DType::kI32}, StreamRef::caller()), "all_gather",
        [](Rank from, size_t i) { return element(from, 0, i); });
  check(comm.all_to_all({in.data(), out.data(), kCount, DType::kI32}, StreamRef::caller()), "all_to_all",
        [&](Rank from, size_t i) { return element(from, comm.rank(), i); });
}

TEST_F(LocalityOfTwoNodes, KeepsBytesRightInEveryWayOfReading) {
  for (const RankMode mode : rank_modes()) {
    for (const char* options : {"", "memory_access=staging,staging_bytes=64K"}) {
      SCOPED_TRACE(std::string(name(mode)) + " " + options);
      run_ranks(kRanks, mode, [&](RankContext& rank) {
        bind(rank.rank());
        Communicator comm = rank.communicator(options);
        gather_and_exchange(comm);
        auto part = comm.split(rank.rank() == 1 ? -1 : 0, 0);
        ASSERT_TRUE(part.ok()) << part.status().to_string();
        if (part->has_value()) gather_and_exchange(**part);
      });
    }
  }
}

}  // namespace
}  // namespace shardcomm
