// The order in which ranks read their peers is pure: what it promises is checked by hand, and on random domains.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "planner/planner.h"

namespace shardcomm {
namespace {

using Order = std::vector<Rank>;

Order rotation(Rank me, int size) {
  Order order(static_cast<size_t>(size));
  for (int i = 0; i < size; ++i) order[static_cast<size_t>(i)] = (me + i) % size;
  return order;
}

TEST(ReadingOrder, RotatesInOneDomain) {
  for (const int size : {1, 2, 3, 8, 64}) {
    const std::vector<int> domain_of(static_cast<size_t>(size), 7);
    for (Rank me = 0; me < size; ++me) EXPECT_EQ(reading_order(me, domain_of), rotation(me, size));
  }
}

TEST(ReadingOrder, RotatesWhereEachRankHasADomain) {
  const std::vector<int> domain_of = {3, -1, 0, 9, 2};
  for (Rank me = 0; me < 5; ++me) EXPECT_EQ(reading_order(me, domain_of), rotation(me, 5));
}

TEST(ReadingOrder, BeginsWithTheOwnOfTwoEqualDomains) {
  const std::vector<int> blocks = {0, 0, 0, 1, 1, 1};
  EXPECT_EQ(reading_order(0, blocks), (Order{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(reading_order(1, blocks), (Order{1, 2, 0, 4, 5, 3}));
  EXPECT_EQ(reading_order(5, blocks), (Order{5, 3, 4, 2, 0, 1}));
  const std::vector<int> in_turn = {1, 0, 1, 0};
  EXPECT_EQ(reading_order(0, in_turn), (Order{0, 2, 1, 3}));
  EXPECT_EQ(reading_order(3, in_turn), (Order{3, 1, 2, 0}));
}

TEST(ReadingOrder, BeginsWithTheOwnOfUnevenDomains) {
  const std::vector<int> domain_of = {4, 5, 5, 5, 6, 6};
  EXPECT_EQ(reading_order(0, domain_of), (Order{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(reading_order(2, domain_of), (Order{2, 3, 1, 5, 4, 0}));
  EXPECT_EQ(reading_order(3, domain_of), (Order{3, 1, 2, 4, 5, 0}));  // place 2 of 3 is place 0 of 2
  EXPECT_EQ(reading_order(5, domain_of), (Order{5, 4, 0, 2, 3, 1}));
}

// What must hold for any domains; returns the first promise broken, or "".
std::string broken_promise(Rank me, const std::vector<int>& domain_of, const Order& order) {
  Order sorted = order, all(domain_of.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  if (sorted != all) return "every rank is there once";
  if (order.front() != me) return "the rank itself is first";
  const auto domain = [&](Rank r) { return domain_of[static_cast<size_t>(r)]; };
  std::set<int> left_behind;
  for (size_t i = 1; i < order.size(); ++i) {
    if (domain(order[i]) == domain(order[i - 1])) continue;
    left_behind.insert(domain(order[i - 1]));
    if (left_behind.contains(domain(order[i]))) return "domains are read one after the other, the own one first";
  }
  return "";
}

TEST(ReadingOrder, KeepsItsPromisesOnRandomDomains) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 100; ++round) {
    const int kinds = 1 + static_cast<int>(random() % 12);
    std::vector<int> domain_of(64);
    for (int& domain : domain_of) domain = static_cast<int>(random()) % kinds;
    for (Rank me = 0; me < 64; ++me)
      ASSERT_EQ(broken_promise(me, domain_of, reading_order(me, domain_of)), "") << "round " << round << " rank " << me;
  }
}

// Every rank reads another source, and each domain one other at a time, wherever its ranks are.
TEST(ReadingOrder, SpreadsWhatEqualDomainsRead) {
  std::mt19937 random(1);
  for (const auto& [domains, members] : {std::pair{2, 4}, {4, 2}, {3, 5}, {8, 8}}) {
    const auto size = static_cast<size_t>(domains * members);
    std::vector<int> domain_of(size);
    for (size_t r = 0; r < size; ++r) domain_of[r] = static_cast<int>(r) % domains;
    std::shuffle(domain_of.begin(), domain_of.end(), random);
    std::vector<Order> orders;
    for (size_t r = 0; r < size; ++r) orders.push_back(reading_order(static_cast<Rank>(r), domain_of));
    for (size_t step = 0; step < size; ++step) {
      std::set<Rank> sources;
      std::set<std::pair<int, int>> links;  // from whose domain, into whose
      for (size_t r = 0; r < size; ++r) {
        const Rank source = orders[r][step];
        sources.insert(source);
        links.emplace(domain_of[static_cast<size_t>(source)], domain_of[r]);
      }
      EXPECT_EQ(sources.size(), size) << domains << " domains, step " << step;
      EXPECT_EQ(links.size(), static_cast<size_t>(domains)) << domains << " domains, step " << step;
    }
  }
}

}  // namespace
}  // namespace shardcomm
