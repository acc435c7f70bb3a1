// Whoever is not of the job: the tcp store drops them, and the ranks of the job do not notice.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <list>
#include <random>

#include "bootstrap/bootstrap.h"
#include "tests/bootstrap/raw.h"
#include "tests/support/live_threads.h"

namespace shardcomm {
namespace {

using namespace shardcomm::testing;
using bootstrap::exchange;

// The whole life of a job of `size` ranks; gives how long it took.
std::chrono::milliseconds meet(int port, int size, int rounds, std::chrono::milliseconds pause = 0ms) {
  const Deadline start = std::chrono::steady_clock::now();
  as_threads(size, [&](Rank rank) {
    const auto store = join_or_fail(tcp_uri(port), rank, size, quick_options());
    ASSERT_NE(store, nullptr);
    for (int round = 0; round < rounds; ++round) {
      std::this_thread::sleep_for(pause);
      const auto all = exchange(*store, std::to_string(round), rank, size, std::to_string(rank), in(20s));
      ASSERT_TRUE(all.ok()) << all.status().to_string();
      EXPECT_EQ(all.value().back(), std::to_string(size - 1));
    }
  });
  return since(start);
}

TEST(Strangers, AreDroppedWhileTheJobGoesOn) {
  const int port = free_port();
  const auto keeper = join_or_fail(tcp_uri(port), 0, 3, quick_options());
  const uint64_t seed = std::random_device{}();
  std::list<std::thread> strangers;
  const auto stranger = [&](std::chrono::milliseconds limit, auto&& talk) {
    strangers.emplace_back([=] {
      RawConnection c = RawConnection::to(port);
      talk(c);
      EXPECT_LT(c.until_closed(10s), limit);
    });
  };
  stranger(1s, [](RawConnection& c) { c.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); });
  stranger(1s, [](RawConnection& c) { c.send("\x16\x03\x01\x02"); });
  stranger(1s, [](RawConnection& c) { c.send(bootstrap::encode(bootstrap::Proof{})); });
  stranger(1s, [](RawConnection& c) { c.send(bootstrap::encode(bootstrap::GetRequest{1, 1000, "key"})); });
  stranger(1s, [](RawConnection& c) { c.send(bootstrap::encode_reply_head(1, Code::kOk, 1 << 20)); });
  stranger(1s, [](RawConnection& c) { c.send(bootstrap::encode(bootstrap::Hello{}) + "and more"); });
  stranger(3s, [](RawConnection&) {});                                                    // says nothing
  stranger(3s, [](RawConnection& c) { c.send(bootstrap::encode(bootstrap::Hello{})); });  // never proves
  stranger(500ms, [](RawConnection& c) {                                                  // a byte now and then
    const std::string hello = bootstrap::encode(bootstrap::Hello{});
    for (size_t i = 0; i < 30 && c.send(hello.substr(i, 1)); ++i) std::this_thread::sleep_for(100ms);
  });
  strangers.emplace_back([=] {
    std::mt19937_64 random(seed);
    for (int i = 0; i < 200; ++i) {
      RawConnection c = RawConnection::to(port);
      std::string garbage(random() % 2000, '\0');
      for (char& b : garbage) b = static_cast<char>(random());
      if (i % 2 == 0) garbage = bootstrap::encode(bootstrap::Hello{}).substr(0, random() % 13) + garbage;
      c.send(garbage);
    }
  });
  as_threads(2, [&](Rank thread) {
    const Rank rank = thread + 1;
    const auto store = join_or_fail(tcp_uri(port), rank, 3, quick_options());
    ASSERT_NE(store, nullptr);
    for (int round = 0; round < 50; ++round) {
      EXPECT_TRUE(store->set(std::to_string(rank * 1000 + round), "x").ok());
      EXPECT_TRUE(store->get(std::to_string((3 - rank) * 1000 + round), in(10s)).ok()) << "seed " << seed;
      std::this_thread::sleep_for(20ms);
    }
  });
  for (std::thread& thread : strangers) thread.join();
  EXPECT_TRUE(keeper->get("1049", in(1s)).ok());
}

// Thousands of connections that say nothing and stay: the places of strangers are full all the time.
TEST(Strangers, AFloodDelaysAndDoesNotStop) {
  const int port = free_port();
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  const size_t count = std::min<size_t>(3000, static_cast<size_t>(files.rlim_cur) / 4);
  const auto keeper = join_or_fail(tcp_uri(port), 0, 4, quick_options());
  std::vector<RawConnection> flood;
  for (size_t i = 0; i < count; ++i) flood.push_back(RawConnection::to(port));
  std::atomic<bool> over{false};
  std::thread more([&] {
    for (size_t i = 0; !over; i = (i + 1) % flood.size()) flood[i] = RawConnection::to(port);
  });
  const Deadline start = std::chrono::steady_clock::now();
  as_threads(3, [&](Rank thread) {
    const auto store = join_or_fail(tcp_uri(port), thread + 1, 4, quick_options());
    ASSERT_NE(store, nullptr);
    EXPECT_TRUE(store->set(std::to_string(thread), "here").ok());
    for (Rank other = 0; other < 3; ++other) EXPECT_TRUE(store->get(std::to_string(other), in(10s)).ok());
  });
  EXPECT_LT(since(start), 10s);
  RecordProperty("ms", static_cast<int>(since(start).count()));
  over = true;
  more.join();
}

TEST(Strangers, AnotherSecretIsNamedOnBothSidesAndHarmsNobody) {
  const int port = free_port();
  const auto rank_0 = join_or_fail(tcp_uri(port), 0, 2, quick_options());
  for (const char* secret : {"a wrong secret", ""}) {
    const Status refused = open_or_die(tcp_uri(port))->join(1, 2, quick_options(secret));
    EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
    EXPECT_TEXT(refused, "has another job secret");
    EXPECT_TEXT(refused, *secret == '\0' ? "SHARDCOMM_JOB_SECRET is unset" : "SHARDCOMM_JOB_SECRET is set");
    EXPECT_FALSE(contains(refused.message(), "wrong secret")) << "shows the secret: " << refused.to_string();
  }
  const Status late = rank_0->get("key", in(0s)).status();
  EXPECT_EQ(late.code(), Code::kTimedOut);
  EXPECT_TEXT(late, "rank 1 of 2 has not joined; a connection from 127.0.0.1:");
  EXPECT_TEXT(late, "as rank 1 was refused, it has another job secret");
  const auto rank_1 = join_or_fail(tcp_uri(port), 1, 2, quick_options());
  ASSERT_NE(rank_1, nullptr);
  EXPECT_TRUE(rank_1->set("key", "value").ok());
  EXPECT_TRUE(rank_0->get("key", in(5s)).ok());
}

TEST(Strangers, WithoutASecretRanksStillMeet) {
  const int port = free_port();
  as_threads(2, [&](Rank rank) {
    const auto store = join_or_fail(tcp_uri(port), rank, 2, quick_options(""));
    ASSERT_NE(store, nullptr);
    EXPECT_TRUE(exchange(*store, "x", rank, 2, "blob", in(10s)).ok());
  });
}

TEST(Strangers, AProofServesOnce) {
  const int port = free_port();
  const auto keeper = join_or_fail(tcp_uri(port), 0, 3, quick_options());
  bootstrap::Hello hello;
  hello.rank = 1;
  hello.world_size = 3;
  const std::string hello_frame = encode(hello);
  const std::string hello_body = hello_frame.substr(bootstrap::kHeaderBytes);
  RawConnection first = RawConnection::to(port), second = RawConnection::to(port);
  ASSERT_TRUE(first.send(hello_frame) && second.send(hello_frame));
  const std::string challenge = first.receive().second;
  EXPECT_NE(challenge, second.receive().second);
  const bootstrap::Proof proof{rank_proof(bootstrap::Secret("the secret of this test"), hello_body, challenge)};
  ASSERT_TRUE(second.send(encode(proof)));  // right, but for the other conversation
  const auto verdict = bootstrap::decode_verdict(second.receive().second);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->outcome, bootstrap::Outcome::kOtherSecret);
  ASSERT_TRUE(first.send(encode(proof)));
  const auto good = bootstrap::decode_verdict(first.receive().second);
  ASSERT_TRUE(good);
  EXPECT_EQ(good->outcome, bootstrap::Outcome::kAdmitted);
}

// Someone else who listens where rank 0 should.
Status join_against(const std::function<void(RawConnection&)>& store, std::chrono::milliseconds init_timeout = 5s) {
  const int port = free_port();
  RawListener listener(port);
  std::thread other([&] {
    RawConnection c = listener.accept();
    store(c);
    c.until_closed(2s);
  });
  Options options = quick_options();
  options.init_timeout = init_timeout;
  const Status joined = open_or_die(tcp_uri(port))->join(1, 2, options);
  other.join();
  return joined;
}

TEST(Strangers, AListenerThatIsNoStoreIsRefused) {
  const Status http = join_against([](RawConnection& c) { c.send("HTTP/1.1 400 Bad Request\r\n\r\n"); });
  EXPECT_EQ(http.code(), Code::kFailedPrecondition);
  EXPECT_TEXT(http, "does not speak shardcomm's protocol");
  EXPECT_TEXT(http, "rank 1 joins");
}

TEST(Strangers, AStoreThatDoesNotKnowTheSecretIsRefused) {
  std::string heard;
  const Status impostor = join_against([&](RawConnection& c) {
    c.receive();
    c.send(encode(bootstrap::Challenge{}));
    c.receive();
    c.send(encode(bootstrap::Verdict{}));  // "you are admitted", without a proof
    heard = c.seen();
  });
  EXPECT_EQ(impostor.code(), Code::kFailedPrecondition);
  EXPECT_TEXT(impostor, "did not prove that it knows the job secret");
  EXPECT_GT(heard.size(), 60u);
  EXPECT_FALSE(contains(heard, "secret of this test"));
}

TEST(Strangers, VersionSkewIsTheSameNamedErrorForAll) {
  const int port = free_port();
  const auto rank_0 = join_or_fail(tcp_uri(port), 0, 4, quick_options());
  const auto rank_1 = join_or_fail(tcp_uri(port), 1, 4, quick_options());
  RawConnection unproven = RawConnection::to(port);
  const auto other_secret = introduce(unproven, {.version = 7, .rank = 3, .world_size = 4, .secret = "guess"});
  ASSERT_TRUE(other_secret);
  EXPECT_EQ(other_secret->outcome, bootstrap::Outcome::kOtherSecret);
  EXPECT_EQ(rank_0->get("key", in(0s)).status().code(), Code::kTimedOut);  // no harm done

  RawConnection newer = RawConnection::to(port);
  const auto verdict = introduce(newer, {.version = 7, .rank = 3, .world_size = 4});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->outcome, bootstrap::Outcome::kRefused);
  for (const Status& status : {Status(verdict->code, verdict->text), rank_0->get("key", in(5s)).status(),
                               rank_1->get("key", in(5s)).status()}) {
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_TEXT(status, "rank 3");
    EXPECT_TEXT(status, "speaks version 7 of the store's protocol, rank 0 version 1");
  }
}

TEST(Strangers, ARankTellsWhatAStoreOfAnotherVersionSays) {
  const Status skew = join_against([&](RawConnection& c) {
    const bootstrap::Secret secret("the secret of this test");
    const std::string hello = c.receive().second;
    bootstrap::Challenge challenge;
    challenge.version = 9;
    const std::string challenge_frame = encode(challenge);
    c.send(challenge_frame);
    c.receive();
    bootstrap::Verdict verdict{bootstrap::Outcome::kRefused, Code::kFailedPrecondition, "rank 0 version 9", {}};
    const std::string body = encode(verdict).substr(bootstrap::kHeaderBytes);
    verdict.mac =
        store_proof(secret, {hello, challenge_frame.substr(bootstrap::kHeaderBytes), bootstrap::signed_part(body)});
    c.send(encode(verdict));
  });
  EXPECT_EQ(skew.code(), Code::kFailedPrecondition);
  EXPECT_TEXT(skew, "rank 0 version 9");
}

TEST(Strangers, AListenerThatClosesIsTriedAgainUntilTheDeadline) {
  const int port = free_port();
  RawListener listener(port);
  std::atomic<int> visits{0};
  std::thread other([&] {
    for (;;) {
      RawConnection c = listener.accept();
      if (!c.read_more(1s)) return;  // the test's own last visit says nothing
      ++visits;
    }
  });
  Options options = quick_options();
  options.init_timeout = 600ms;
  const Deadline start = std::chrono::steady_clock::now();
  const Status joined = open_or_die(tcp_uri(port))->join(1, 2, options);
  EXPECT_EQ(joined.code(), Code::kTimedOut);
  EXPECT_TEXT(joined, "rank 1 did not reach rank 0 at 127.0.0.1:" + std::to_string(port));
  EXPECT_GE(since(start), 600ms);
  EXPECT_LT(since(start), 2s);
  EXPECT_GT(visits, 2);
  RawConnection::to(port).close();
  other.join();
}

TEST(Strangers, AMemberThatTalksNonsenseIsLost) {
  const int port = free_port();
  const auto rank_0 = join_or_fail(tcp_uri(port), 0, 2, quick_options());
  RawConnection member = RawConnection::to(port);
  const auto verdict = introduce(member, {.rank = 1, .world_size = 2});
  ASSERT_TRUE(verdict && verdict->outcome == bootstrap::Outcome::kAdmitted);
  member.send(encode(bootstrap::ForgetRequest{1, ""}));  // rank 0's privilege
  EXPECT_LT(member.until_closed(5s), 2s);
  const Status lost = rank_0->get("key", in(5s)).status();
  EXPECT_EQ(lost.code(), Code::kPeerLost);
  EXPECT_TEXT(lost, "rank 1 (pid 0 at 127.0.0.1:");
}

// A member that asks and never reads: what the store owes it stays bounded, and the others are served meanwhile.
TEST(Strangers, AMemberThatDoesNotReadDelaysOnlyItself) {
  const int port = free_port();
  const auto rank_0 = join_or_fail(tcp_uri(port), 0, 3, quick_options());
  ASSERT_TRUE(rank_0->set("large", std::string(8 << 20, 'x')).ok());
  RawConnection member = RawConnection::to(port);
  const auto verdict = introduce(member, {.rank = 1, .world_size = 3});
  ASSERT_TRUE(verdict && verdict->outcome == bootstrap::Outcome::kAdmitted);
  for (uint32_t id = 1; id < 200; ++id) ASSERT_TRUE(member.send(encode(bootstrap::GetRequest{id, 0, "large"})));
  const auto rank_2 = join_or_fail(tcp_uri(port), 2, 3, quick_options());
  ASSERT_NE(rank_2, nullptr);
  const auto got = rank_2->get("large", in(5s));
  EXPECT_TRUE(got.ok()) << got.status().to_string();
}

TEST(Strangers, JobsOneAfterTheOtherOnOnePortLeaveNothingBehind) {
  const int port = free_port();
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  meet(port, 3, 1);
  const auto files_before = open_files();
  const size_t threads_before = testing::live_threads();
  for (int i = 0; i < 50; ++i) meet(port, 3, 1);
  EXPECT_EQ(open_files(), files_before);
  EXPECT_EQ(testing::live_threads(), threads_before);
}

}  // namespace
}  // namespace shardcomm
