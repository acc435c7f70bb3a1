// The tcp store's own cases: late, missing and dead ranks, ports and addresses.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "bootstrap/bootstrap.h"
#include "bootstrap/socket.h"
#include "tests/bootstrap/raw.h"

namespace shardcomm {
namespace {

using namespace shardcomm::testing;
using bootstrap::exchange;

TEST(TcpStore, RanksWaitForALateRank0) {
  const int port = free_port();
  as_threads(3, [&](Rank rank) {
    if (rank == 0) std::this_thread::sleep_for(700ms);
    const auto store = join_or_fail(tcp_uri(port), rank, 3, quick_options());
    ASSERT_NE(store, nullptr);
    EXPECT_TRUE(exchange(*store, "x", rank, 3, "blob", in(10s)).ok());
  });
}

TEST(TcpStore, WithoutRank0TheDeadlineNamesWhereItShouldBe) {
  const int port = free_port();
  Options options = quick_options();
  options.init_timeout = 500ms;
  const Deadline start = std::chrono::steady_clock::now();
  const Status joined = open_or_die(tcp_uri(port))->join(1, 2, options);
  EXPECT_EQ(joined.code(), Code::kTimedOut);
  EXPECT_TEXT(joined, "rank 1 did not reach rank 0 at 127.0.0.1:" + std::to_string(port));
  EXPECT_TEXT(joined, "ECONNREFUSED");
  EXPECT_GE(since(start), 500ms);
  EXPECT_LT(since(start), 1500ms);
}

TEST(TcpStore, AFailedJoinMayBeTriedAgain) {
  const int port = free_port();
  Options options = quick_options();
  options.init_timeout = 50ms;
  const auto rank_1 = open_or_die(tcp_uri(port));
  EXPECT_EQ(rank_1->join(1, 2, options).code(), Code::kTimedOut);
  const auto rank_0 = join_or_fail(tcp_uri(port), 0, 2, quick_options());
  EXPECT_TRUE(rank_1->join(1, 2, quick_options()).ok());
  EXPECT_TRUE(rank_1->set("key", "value").ok());
}

TEST(TcpStore, APortInUseIsNamed) {
  const int port = free_port();
  const RawListener other(port);
  const Deadline start = std::chrono::steady_clock::now();
  const Status joined = open_or_die(tcp_uri(port))->join(0, 2, quick_options());
  EXPECT_EQ(joined.code(), Code::kUnavailable);
  EXPECT_TEXT(joined, "rank 0 can not listen on 127.0.0.1:" + std::to_string(port) + ": the port is in use");
  EXPECT_LT(since(start), 2s);
}

TEST(TcpStore, TwoRanks0AreAPortInUse) {
  const int port = free_port();
  const auto first = join_or_fail(tcp_uri(port), 0, 2, quick_options());
  EXPECT_EQ(open_or_die(tcp_uri(port))->join(0, 2, quick_options()).code(), Code::kUnavailable);
}

TEST(TcpStore, AnAddressOfAnotherMachineIsNamed) {
  const Status joined = open_or_die("tcp://192.0.2.1:20000")->join(0, 2, quick_options());  // RFC 5737: nobody's
  EXPECT_EQ(joined.code(), Code::kUnavailable);
  EXPECT_TEXT(joined, "does not belong to this machine");
}

TEST(TcpStore, AHostNameMeetsOnAllItsAddresses) {
  const int port = free_port();
  const std::string by_name = "tcp://localhost:" + std::to_string(port);
  const auto rank_0 = join_or_fail(by_name, 0, 3, quick_options());
  const auto rank_1 = join_or_fail(by_name, 1, 3, quick_options());
  const auto rank_2 = join_or_fail(tcp_uri(port), 2, 3, quick_options());
  ASSERT_TRUE(rank_0 && rank_1 && rank_2);
  EXPECT_TRUE(rank_2->set("key", "value").ok());
  EXPECT_TRUE(rank_1->get("key", in(5s)).ok());
}

TEST(TcpStore, ALoopbackNameListensOnLoopbackAlone) {
  const auto addresses = bootstrap::resolve({"localhost", 1});
  ASSERT_TRUE(addresses.ok());
  for (const bootstrap::Address& address : addresses.value()) EXPECT_TRUE(address.is_loopback()) << address.text();
  const auto everywhere = bootstrap::resolve({"0.0.0.0", 1});
  ASSERT_TRUE(everywhere.ok());
  EXPECT_FALSE(everywhere.value()[0].is_loopback());
}

TEST(TcpStore, ListeningBeyondLoopbackWithoutASecretIsWarnedOf) {
  const std::string uri = "tcp://0.0.0.0:" + std::to_string(free_port());
  const auto warnings = [&](const char* secret) {
    ::testing::internal::CaptureStderr();
    join_or_fail(uri, 0, 2, quick_options(secret)).reset();
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string warned = warnings("");
  EXPECT_TRUE(contains(warned, "without a job secret")) << warned;
  EXPECT_EQ(std::count(warned.begin(), warned.end(), '\n'), 1) << warned;
  EXPECT_EQ(warnings("secret"), "");
}

TEST(TcpStore, ABrokenConnectionIsALostRankForAllAtOnce) {
  const int port = free_port();
  const auto rank_0 = join_or_fail(tcp_uri(port), 0, 4, quick_options());
  const auto rank_1 = join_or_fail(tcp_uri(port), 1, 4, quick_options());
  RawConnection rank_2 = RawConnection::to(port);
  const auto verdict = introduce(rank_2, {.rank = 2, .world_size = 4});
  ASSERT_TRUE(verdict && verdict->outcome == bootstrap::Outcome::kAdmitted);
  rank_2.send(encode(bootstrap::SetRequest{1, "before", "value"}));
  rank_2.receive();
  ASSERT_TRUE(rank_1->get("before", in(5s)).ok());
  std::thread breaking([&] {
    std::this_thread::sleep_for(200ms);
    rank_2.close();
  });
  Status seen_by_0, seen_by_1;
  as_threads(2, [&](Rank rank) {
    const Deadline start = std::chrono::steady_clock::now();
    Store& store = rank == 0 ? *rank_0 : *rank_1;
    (rank == 0 ? seen_by_0 : seen_by_1) = store.get("missing", in(20s)).status();
    EXPECT_LT(since(start), 2s);
  });
  breaking.join();
  for (const Status& status : {seen_by_0, seen_by_1, rank_1->get("later", in(20s)).status()}) {
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_TEXT(status, "rank 2 (pid 0 at 127.0.0.1:");
    EXPECT_TEXT(status, "closed without a goodbye");
  }
  EXPECT_TRUE(rank_0->get("before", in(1s)).ok());  // what is there stays
  EXPECT_TRUE(rank_1->set("after", "value").ok());
}

TEST(TcpStore, ARankThatSaysGoodbyeIsNotLost) {
  const int port = free_port();
  const auto rank_0 = join_or_fail(tcp_uri(port), 0, 3, quick_options());
  join_or_fail(tcp_uri(port), 1, 3, quick_options()).reset();
  const Status late = rank_0->get("key", in(300ms)).status();
  EXPECT_EQ(late.code(), Code::kTimedOut);
  EXPECT_TEXT(late, "rank 2 of 3 has not joined; rank 1 has left");
}

TEST(TcpStore, WhenRank0LeavesTheOthersAreTold) {
  const int port = free_port();
  auto rank_0 = join_or_fail(tcp_uri(port), 0, 3, quick_options());
  const auto rank_1 = join_or_fail(tcp_uri(port), 1, 3, quick_options());
  std::thread leaving([&] {
    std::this_thread::sleep_for(200ms);
    rank_0.reset();
  });
  const Deadline start = std::chrono::steady_clock::now();
  const Status told = rank_1->get("key", in(20s)).status();
  leaving.join();
  EXPECT_LT(since(start), 2s);
  EXPECT_EQ(told.code(), Code::kPeerLost);
  EXPECT_TEXT(told, "rank 0 left the meeting; rank 2 of 3 has not joined");
  EXPECT_EQ(rank_1->set("key", "").code(), Code::kPeerLost);
  EXPECT_EQ(rank_1->get("key", in(20s)).status().code(), Code::kPeerLost);
}

// Rank 0 ends its store in the very moment exchange returns; the others still get all of it.
TEST(TcpStore, ExchangeIsOverForAllWhenItIsForRank0) {
  for (int round = 0; round < 10; ++round) {
    const int port = free_port();
    as_threads(4, [&](Rank rank) {
      auto store = join_or_fail(tcp_uri(port), rank, 4, quick_options());
      ASSERT_NE(store, nullptr);
      const std::string blob(200'000, static_cast<char>('a' + rank));
      const auto all = exchange(*store, "x", rank, 4, blob, in(20s));
      store.reset();
      ASSERT_TRUE(all.ok()) << "rank " << rank << ": " << all.status().to_string();
      EXPECT_EQ(all.value()[3][199'999], 'd');
    });
  }
}

TEST(TcpStore, ARankThatIsAloneNeedsNoPort) {
  const int port = free_port();
  const RawListener other(port);
  const auto store = join_or_fail(tcp_uri(port), 0, 1, quick_options());
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(store->set("key", "value").ok());
  EXPECT_TRUE(store->get("key", in(0s)).ok());
  EXPECT_EQ(store->get("other", in(10ms)).status().code(), Code::kTimedOut);
}

TEST(TcpStore, TooFewFileDescriptorsAreNamedWithNeedAndLimit) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 100;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &small), 0);
  const Status joined = open_or_die(tcp_uri(free_port()))->join(0, 1000, quick_options());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(joined.code(), Code::kUnavailable);
  EXPECT_TEXT(joined, "needs 1064 file descriptors, the limit is 100");
}

}  // namespace
}  // namespace shardcomm
