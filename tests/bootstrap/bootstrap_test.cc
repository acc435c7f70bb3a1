// What every kind of store promises, and the collective operations over each of them. Ranks are threads.
#include <gtest/gtest.h>

#include <mutex>
#include <random>

#include "bootstrap/bootstrap.h"
#include "tests/bootstrap/meeting.h"

namespace shardcomm {
namespace {

using namespace shardcomm::testing;
using bootstrap::agree;
using bootstrap::agree_ok;
using bootstrap::exchange;
using bootstrap::exchange_result;

class StoreTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { uri_ = fresh_uri(); }

  std::string fresh_uri() {
    static int count = 0;
    if (GetParam() == "tcp") return tcp_uri(free_port());
    if (GetParam() == "tcp6") return "tcp://[::1]:" + std::to_string(free_port());
    if (GetParam() == "file") return "file://" + directory_.path() + "/meeting" + std::to_string(count++);
    return "local://test" + std::to_string(count++);
  }

  // All ranks join, run and leave together.
  void meet(int size, const std::function<void(Store&, Rank)>& function) {
    as_threads(size, [&](Rank rank) {
      const auto store = join_or_fail(uri_, rank, size, quick_options());
      if (store != nullptr) function(*store, rank);
    });
  }

  TemporaryDirectory directory_;
  std::string uri_;
};

bool has_ipv6() {
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const bool works = fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (fd >= 0) close(fd);
  return works;
}

std::vector<std::string> kinds() {
  std::vector<std::string> all = {"tcp", "file", "local"};
  if (has_ipv6()) all.push_back("tcp6");
  return all;
}

INSTANTIATE_TEST_SUITE_P(Kinds, StoreTest, ::testing::ValuesIn(kinds()), [](const auto& info) { return info.param; });

TEST_P(StoreTest, ValuesOfAnyBytesReachEveryRank) {
  const std::string odd_key("a/b c\0\xff..", 9);
  const std::string long_key(1024, 'k');
  std::mt19937_64 random(std::random_device{}());
  std::string large(3 << 20, '\0');
  for (char& c : large) c = static_cast<char>(random());
  meet(3, [&](Store& store, Rank rank) {
    if (rank == 1) {
      EXPECT_TRUE(store.set(odd_key, std::string("x\0y", 3)).ok());
      EXPECT_TRUE(store.set("empty", "").ok());
    }
    if (rank == 2) {
      EXPECT_TRUE(store.set("large", large).ok());
    }
    if (rank == 0) {
      EXPECT_TRUE(store.set(long_key, "long").ok());
    }
    const auto get = [&](const std::string& key) {
      auto got = store.get(key, in(10s));
      EXPECT_TRUE(got.ok()) << got.status().to_string();
      return got.ok() ? *got : "nothing";
    };
    EXPECT_EQ(get(odd_key), std::string("x\0y", 3));
    EXPECT_EQ(get("empty"), "");
    EXPECT_TRUE(get("large") == large);
    EXPECT_EQ(get(long_key), "long");
    EXPECT_EQ(get(long_key), "long");  // reading takes nothing away
    EXPECT_TRUE(exchange(store, "end", rank, 3, "", in(10s)).ok());
  });
}

TEST_P(StoreTest, GetWaitsForItsKeyAlone) {
  meet(2, [&](Store& store, Rank rank) {
    const Deadline start = std::chrono::steady_clock::now();
    if (rank == 1) {
      std::this_thread::sleep_for(200ms);
      EXPECT_TRUE(store.set("other", "no").ok());
      std::this_thread::sleep_for(200ms);
      EXPECT_TRUE(store.set("key", "yes").ok());
    } else {
      const auto got = store.get("key", in(10s));
      ASSERT_TRUE(got.ok()) << got.status().to_string();
      EXPECT_EQ(got.value(), "yes");
      EXPECT_GE(since(start), 350ms);
      EXPECT_LT(since(start), 5s);
    }
    EXPECT_TRUE(exchange(store, "end", rank, 2, "", in(10s)).ok());
  });
}

TEST_P(StoreTest, AKeyIsSetOnce) {
  meet(2, [&](Store& store, Rank rank) {
    if (rank == 0) {
      EXPECT_TRUE(store.set("key", "first").ok());
      const Status again = store.set("key", "second");
      EXPECT_EQ(again.code(), Code::kFailedPrecondition);
      EXPECT_TEXT(again, "'key' is already set");
    }
    EXPECT_TRUE(agree_ok(store, "set", rank, 2, {}, in(10s)).ok());
    if (rank == 1) {
      EXPECT_EQ(store.set("key", "third").code(), Code::kFailedPrecondition);
    }
    const auto got = store.get("key", in(5s));
    EXPECT_EQ(got.ok() ? got.value() : got.status().to_string(), "first");
    EXPECT_TRUE(agree_ok(store, "end", rank, 2, {}, in(10s)).ok());
  });
}

TEST_P(StoreTest, ADeadlineThatHasPassedLooksOnce) {
  const auto store = join_or_fail(uri_, 0, 2, quick_options());
  ASSERT_TRUE(store->set("key", "value").ok());
  EXPECT_TRUE(store->get("key", in(-1s)).ok());
  EXPECT_TRUE(store->get("key", Deadline::min()).ok());
  EXPECT_TRUE(store->get("key", Deadline::max()).ok());
  EXPECT_EQ(store->get("nothing", in(-1s)).status().code(), Code::kTimedOut);
}

TEST_P(StoreTest, ATimeoutNamesTheRanksThatDidNotJoin) {
  const auto rank_0 = join_or_fail(uri_, 0, 4, quick_options());
  const auto rank_2 = join_or_fail(uri_, 2, 4, quick_options());
  for (Store* store : {rank_0.get(), rank_2.get()}) {
    const Deadline start = std::chrono::steady_clock::now();
    const Status late = store->get("key", in(200ms)).status();
    EXPECT_EQ(late.code(), Code::kTimedOut);
    EXPECT_TEXT(late, "'key'");
    EXPECT_TEXT(late, "ranks 1, 3 of 4 have not joined");
    EXPECT_GE(since(start), 200ms);
    EXPECT_LT(since(start), 2s);
  }
}

TEST_P(StoreTest, JoinChecksItsArguments) {
  const auto store = open_or_die(uri_);
  EXPECT_EQ(store->set("key", "").code(), Code::kFailedPrecondition);
  EXPECT_EQ(store->get("key", in(1s)).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(store->join(0, 0, quick_options()).code(), Code::kInvalidArgument);
  EXPECT_EQ(store->join(-1, 2, quick_options()).code(), Code::kInvalidArgument);
  EXPECT_EQ(store->join(2, 2, quick_options()).code(), Code::kInvalidArgument);
  EXPECT_TRUE(store->join(0, 2, quick_options()).ok());
  EXPECT_TRUE(store->join(0, 2, quick_options()).ok());
  const Status other = store->join(1, 2, quick_options());
  EXPECT_EQ(other.code(), Code::kFailedPrecondition);
  EXPECT_TEXT(other, "joined as rank 0 of 2 and can not become rank 1 of 2");
  EXPECT_EQ(store->set("", "").code(), Code::kInvalidArgument);
  EXPECT_EQ(store->set(std::string(1025, 'k'), "").code(), Code::kInvalidArgument);
  EXPECT_EQ(store->set("key", std::string((64 << 20) + 1, 'v')).code(), Code::kInvalidArgument);
}

TEST_P(StoreTest, ARankThatJoinsTwiceFailsTheMeetingForAll) {
  const auto rank_0 = join_or_fail(uri_, 0, 4, quick_options());
  const auto rank_1 = join_or_fail(uri_, 1, 4, quick_options());
  Status seen_by_1;
  std::thread waiting([&] { seen_by_1 = rank_1->get("key", in(10s)).status(); });
  std::this_thread::sleep_for(100ms);
  const Status again = open_or_die(uri_)->join(1, 4, quick_options());
  waiting.join();
  for (const Status& status : {again, seen_by_1, rank_0->get("key", in(10s)).status()}) {
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_TEXT(status, "rank 1 joined twice");
  }
}

TEST_P(StoreTest, ADuplicateDoesNotHarmAMeetingThatIsComplete) {
  meet(2, [&](Store& store, Rank rank) {
    EXPECT_TRUE(agree_ok(store, "all", rank, 2, {}, in(10s)).ok());
    if (rank == 0) {
      EXPECT_EQ(open_or_die(uri_)->join(1, 2, quick_options()).code(), Code::kFailedPrecondition);
    }
    EXPECT_TRUE(agree_ok(store, "end", rank, 2, {}, in(10s)).ok());
  });
}

TEST_P(StoreTest, AnotherWorldSizeFailsTheMeetingForAll) {
  const auto rank_0 = join_or_fail(uri_, 0, 4, quick_options());
  const Status other = open_or_die(uri_)->join(2, 5, quick_options());
  for (const Status& status : {other, rank_0->get("key", in(10s)).status()}) {
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_TEXT(status, "rank 2");
    EXPECT_TEXT(status, "came with world size 5, this meeting has 4");
  }
}

TEST_P(StoreTest, APlaceIsFreeAgainWhenItsMeetingIsOver) {
  for (int generation = 0; generation < 5; ++generation) {
    meet(3, [&](Store& store, Rank rank) {
      const std::string mine = std::to_string(generation * 10 + rank);
      const auto all = exchange(store, "x", rank, 3, mine, in(10s));
      ASSERT_TRUE(all.ok()) << all.status().to_string();
      EXPECT_EQ(all.value()[1], std::to_string(generation * 10 + 1));
    });
  }
}

TEST_P(StoreTest, ExchangeGivesEveryonesBlobInRankOrder) {
  for (int size : {1, 2, 3, 8}) {
    uri_ = fresh_uri();
    meet(size, [&](Store& store, Rank rank) {
      for (int round = 0; round < 3; ++round) {
        const std::string mine(static_cast<size_t>(rank * 1000 + round), static_cast<char>('a' + rank));
        const auto all = exchange(store, "round " + std::to_string(round), rank, size, mine, in(10s));
        ASSERT_TRUE(all.ok()) << all.status().to_string();
        ASSERT_EQ(all.value().size(), static_cast<size_t>(size));
        for (int r = 0; r < size; ++r) {
          EXPECT_EQ(all.value()[static_cast<size_t>(r)],
                    std::string(static_cast<size_t>(r * 1000 + round), static_cast<char>('a' + r)));
        }
      }
    });
  }
}

// Statuses of all ranks of a collective call that should fail alike.
class Verdicts {
 public:
  explicit Verdicts(int size) : all_(static_cast<size_t>(size)) {}
  void put(Rank rank, Status status) { all_[static_cast<size_t>(rank)] = std::move(status); }
  void expect_same(Code code) const {
    for (const Status& status : all_) {
      EXPECT_EQ(status.code(), code) << status.to_string();
      EXPECT_EQ(status.to_string(), all_[0].to_string());
    }
  }
  const Status& first() const { return all_[0]; }

 private:
  std::vector<Status> all_;
};

TEST_P(StoreTest, AgreeNamesTheRanksThatDifferAndTheirValuesOnAll) {
  Verdicts texts(4), numbers(4);
  meet(4, [&](Store& store, Rank rank) {
    EXPECT_TRUE(agree(store, "same", rank, 4, "the plan", "equal", in(10s)).ok());
    EXPECT_TRUE(agree(store, "same number", rank, 4, "the plan", uint64_t{7}, in(10s)).ok());
    texts.put(rank, agree(store, "version", rank, 4, "the version", rank == 2 ? "0.2" : "0.1", in(10s)));
    numbers.put(rank, agree(store, "plan", rank, 4, "the plan", uint64_t{rank == 0 ? 0xabcu : 0xdefu}, in(10s)));
    EXPECT_TRUE(agree_ok(store, "end", rank, 4, {}, in(10s)).ok());  // a disagreement does not end the store
  });
  texts.expect_same(Code::kFailedPrecondition);
  EXPECT_TEXT(texts.first(), "ranks differ in the version: ranks 0, 1, 3 have '0.1'; rank 2 has '0.2'");
  numbers.expect_same(Code::kFailedPrecondition);
  EXPECT_TEXT(numbers.first(), "rank 0 has '0x0000000000000abc'; ranks 1-3 have '0x0000000000000def'");
}

TEST_P(StoreTest, AFailureOfOneRankIsEveryonesAtOnce) {
  for (Rank failing : {0, 1, 2}) {
    uri_ = fresh_uri();
    Verdicts verdicts(3);
    meet(3, [&](Store& store, Rank rank) {
      const Status mine = rank == failing ? Status(Code::kOutOfMemory, "no room for the window") : Status();
      verdicts.put(rank, agree_ok(store, "window", rank, 3, mine, in(10s)));
      EXPECT_TRUE(agree_ok(store, "end", rank, 3, {}, in(10s)).ok());
    });
    verdicts.expect_same(Code::kOutOfMemory);
    EXPECT_TEXT(verdicts.first(), "rank " + std::to_string(failing) + ": no room for the window");
  }
}

TEST_P(StoreTest, AFailureIsKnownBeforeLateRanksCome) {
  Verdicts verdicts(3);
  meet(3, [&](Store& store, Rank rank) {
    const Deadline start = std::chrono::steady_clock::now();
    if (rank == 1) std::this_thread::sleep_for(1500ms);
    const Result<std::string> mine =
        rank == 2 ? Result<std::string>(Status(Code::kDevice, "no device")) : std::string();
    verdicts.put(rank, exchange_result(store, "x", rank, 3, mine, in(10s)).status());
    if (rank != 1) {
      EXPECT_LT(since(start), 1300ms);
    }
    if (rank == 0) std::this_thread::sleep_for(1700ms);  // keeps the store for rank 1
  });
  verdicts.expect_same(Code::kDevice);
}

TEST_P(StoreTest, ExchangeNamesRanksThatDoNotComeOnAll) {
  Verdicts verdicts(2);
  as_threads(2, [&](Rank rank) {
    const auto store = join_or_fail(uri_, rank, 4, quick_options());
    const Deadline start = std::chrono::steady_clock::now();
    verdicts.put(rank, exchange(*store, "x", rank, 4, "blob", in(500ms)).status());
    EXPECT_LT(since(start), 2s);
  });
  verdicts.expect_same(Code::kTimedOut);
  EXPECT_TEXT(verdicts.first(), "ranks 2, 3 of 4 did not come in time");
  EXPECT_TEXT(verdicts.first(), "ranks 2, 3 of 4 have not joined");
}

TEST_P(StoreTest, ALateRankWithinTheDeadlineIsFine) {
  meet(2, [&](Store& store, Rank rank) {
    if (rank == 1) std::this_thread::sleep_for(700ms);
    EXPECT_TRUE(exchange(store, "x", rank, 2, "blob", in(5s)).ok());
  });
}

TEST_P(StoreTest, ExchangeRefusesBadPlaces) {
  const auto store = join_or_fail(uri_, 0, 2, quick_options());
  EXPECT_EQ(exchange(*store, "x", 2, 2, "", in(1s)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(exchange(*store, "x", 0, 0, "", in(1s)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(exchange(*store, "", 0, 2, "", in(1s)).status().code(), Code::kInvalidArgument);
}

TEST_P(StoreTest, ManyRoundsLeaveNothingBehind) {
  meet(2, [&](Store& store, Rank rank) {
    for (int round = 0; round < 200; ++round) {
      const std::string key = "round " + std::to_string(round);
      ASSERT_TRUE(exchange(store, key, rank, 2, "blob", in(10s)).ok());
    }
    if (rank == 0) {
      EXPECT_EQ(store.get("round 7/result", in(0s)).status().code(), Code::kTimedOut);
    }
    EXPECT_TRUE(agree_ok(store, "end", rank, 2, {}, in(10s)).ok());
  });
}

TEST(LocalStore, NamesKeepMeetingsApart) {
  const auto a = join_or_fail("local://a", 0, 2, quick_options());
  const auto b = join_or_fail("local://b", 0, 2, quick_options());
  EXPECT_TRUE(a->set("key", "of a").ok());
  EXPECT_EQ(b->get("key", in(0s)).status().code(), Code::kTimedOut);
}

TEST(RankList, ReadsWell) {
  using bootstrap::rank_list;
  const std::vector<Rank> one = {3}, some = {1, 3}, two = {4, 5}, runs = {0, 1, 2, 5, 7, 8, 9};
  EXPECT_EQ(rank_list(one), "rank 3");
  EXPECT_EQ(rank_list(some), "ranks 1, 3");
  EXPECT_EQ(rank_list(two), "ranks 4, 5");
  EXPECT_EQ(rank_list(runs), "ranks 0-2, 5, 7-9");
  std::vector<Rank> odd;
  for (Rank r = 1; r < 100; r += 2) odd.push_back(r);
  EXPECT_TRUE(rank_list(odd).ends_with("29, 31 and 34 more")) << rank_list(odd);
}

}  // namespace
}  // namespace shardcomm
