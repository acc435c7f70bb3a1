// The wire format and the proofs, as pure functions.
#include <gtest/gtest.h>

#include <random>

#include "bootstrap/auth.h"
#include "bootstrap/wire.h"

namespace shardcomm::bootstrap {
namespace {

std::string body_of(const std::string& frame) { return frame.substr(kHeaderBytes); }

Frame scan_or_die(const std::string& bytes) {
  Frame frame{};
  EXPECT_EQ(scan_frame(bytes, kMemberBodyLimit, frame), Scan::kFrame);
  return frame;
}

std::vector<std::string> one_of_each() {
  Hello hello;
  hello.rank = 3;
  hello.world_size = 4;
  hello.nonce.fill(7);
  const Verdict refusal{Outcome::kRefused, Code::kFailedPrecondition, "rank 3 joined twice", {}};
  return {encode(hello),
          encode(Challenge{}),
          encode(Proof{}),
          encode(refusal),
          encode(SetRequest{1, "key", "value"}),
          encode(GetRequest{2, 5000, "key"}),
          encode(ForgetRequest{3, pack(std::vector<std::string>{"a", "b"})}),
          encode_reply_head(4, Code::kOk, 5) + "value",
          encode_goodbye("bye")};
}

// Every decoder over any bytes; the sum of what they say keeps them from being optimised away.
size_t decode_all(std::string_view body) {
  size_t good = 0;
  good += decode_hello(body).has_value() + decode_challenge(body).has_value() + decode_proof(body).has_value();
  good += decode_verdict(body).has_value() + decode_set(body).has_value() + decode_get(body).has_value();
  good += decode_forget(body).has_value() + decode_reply(body).has_value() + decode_goodbye(body).has_value();
  good += unpack(body).has_value() + unpack_result(body).ok() + signed_part(body).size() / (body.size() + 1);
  return good;
}

TEST(Wire, FramesComeBackAsTheyWent) {
  Hello hello;
  hello.version = 9;
  hello.rank = -5;
  hello.world_size = 1 << 30;
  hello.pid = 4'000'000'000u;
  hello.nonce[31] = 0xfe;
  const auto h = decode_hello(body_of(encode(hello)));
  ASSERT_TRUE(h);
  EXPECT_EQ(h->version, 9u);
  EXPECT_EQ(h->rank, -5);
  EXPECT_EQ(h->world_size, 1 << 30);
  EXPECT_EQ(h->pid, 4'000'000'000u);
  EXPECT_EQ(h->nonce, hello.nonce);

  Verdict verdict{Outcome::kRefused, Code::kFailedPrecondition, "why", {}};
  verdict.mac[0] = 1;
  const std::string verdict_frame = encode(verdict);
  const auto v = decode_verdict(body_of(verdict_frame));
  ASSERT_TRUE(v);
  EXPECT_EQ(v->text, "why");
  EXPECT_EQ(v->mac, verdict.mac);
  EXPECT_EQ(signed_part(body_of(verdict_frame)).size(), 1u + 4 + 4 + 3);

  const std::string set_frame = encode(SetRequest{77, "key", std::string_view("\0v", 2)});
  const auto set = decode_set(scan_or_die(set_frame).body);
  ASSERT_TRUE(set);
  EXPECT_EQ(set->id, 77u);
  EXPECT_EQ(set->key, "key");
  EXPECT_EQ(set->value, std::string_view("\0v", 2));

  const std::string get_frame = encode(GetRequest{1, 1ull << 40, "key"});
  const auto get = decode_get(scan_or_die(get_frame).body);
  ASSERT_TRUE(get);
  EXPECT_EQ(get->timeout_ms, 1ull << 40);

  const std::string reply_frame = encode_reply_head(5, Code::kTimedOut, 4) + "late";
  const auto reply = decode_reply(scan_or_die(reply_frame).body);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->code, Code::kTimedOut);
  EXPECT_EQ(reply->payload, "late");
}

TEST(Wire, EachCutFrameAsksForMoreAndEachCutBodyIsMalformed) {
  for (const std::string& frame : one_of_each()) {
    for (size_t bytes = 0; bytes < frame.size(); ++bytes) {
      Frame ignored{};
      EXPECT_EQ(scan_frame(std::string_view(frame).substr(0, bytes), kMemberBodyLimit, ignored), Scan::kMore);
    }
    const Frame whole = scan_or_die(frame + "next");
    EXPECT_EQ(whole.bytes, frame.size());
  }
  EXPECT_FALSE(decode_hello(body_of(encode(Hello{})).substr(1)));
  EXPECT_FALSE(decode_hello(body_of(encode(Hello{})) + "x"));
  EXPECT_FALSE(decode_proof(body_of(encode(Proof{})).substr(0, 31)));
}

TEST(Wire, GarbageIsKnownByItsFirstBytes) {
  Frame ignored{};
  const auto scan = [&](std::string_view bytes) { return scan_frame(bytes, kStrangerBodyLimit, ignored); };
  EXPECT_EQ(scan("G"), Scan::kBad);
  EXPECT_EQ(scan("GET / HTTP/1.1\r\n"), Scan::kBad);
  EXPECT_EQ(scan("\x16\x03\x01"), Scan::kBad);
  EXPECT_EQ(scan("SCMX"), Scan::kBad);
  std::string frame = encode(Hello{});
  frame[4] = 0;
  EXPECT_EQ(scan(frame), Scan::kBad);
  frame[4] = 10;
  EXPECT_EQ(scan(frame), Scan::kBad);
  frame[4] = 1;
  frame[6] = 1;
  EXPECT_EQ(scan(frame), Scan::kBad);
}

TEST(Wire, AFrameBeyondTheLimitIsRefusedByItsHeader) {
  Frame ignored{};
  const std::string head = encode_reply_head(1, Code::kOk, kStrangerBodyLimit);
  EXPECT_EQ(scan_frame(head.substr(0, kHeaderBytes), kStrangerBodyLimit, ignored), Scan::kBad);
  EXPECT_EQ(scan_frame(head.substr(0, kHeaderBytes), kMemberBodyLimit, ignored), Scan::kMore);
  std::string huge = encode_goodbye("");
  huge[11] = '\xff';
  EXPECT_EQ(scan_frame(huge, kMemberBodyLimit, ignored), Scan::kBad);
}

TEST(Wire, LengthsThatLieAreMalformed) {
  std::string body = body_of(encode(SetRequest{1, "key", "value"}));
  body[4] = '\xff';  // the key's length
  EXPECT_FALSE(decode_set(body));
  EXPECT_FALSE(decode_set(body_of(encode(SetRequest{1, std::string(kKeyLimit + 1, 'k'), ""}))));
  std::string reply = body_of(encode_reply_head(1, Code::kOk, 0));
  reply[4] = 99;  // no such code
  EXPECT_FALSE(decode_reply(reply));
  Verdict odd;
  odd.code = Code::kInternal;  // admitted, and yet an error
  EXPECT_FALSE(decode_verdict(body_of(encode(odd))));
}

TEST(Wire, ChangedFramesNeverReadOutOfBounds) {
  const uint64_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  size_t good = 0;
  for (int round = 0; round < 5'000; ++round) {
    for (std::string frame : one_of_each()) {
      for (uint64_t changes = random() % 4; changes > 0; --changes)
        frame[random() % frame.size()] = static_cast<char>(random());
      frame.resize(random() % 3 == 0 ? random() % (frame.size() + 1) : frame.size());
      // An exact allocation of its own, so that AddressSanitizer sees one byte too far.
      const std::unique_ptr<char[]> exact(new char[frame.size()]);
      std::copy(frame.begin(), frame.end(), exact.get());
      Frame found{};
      const Scan scan = scan_frame({exact.get(), frame.size()}, kMemberBodyLimit, found);
      if (scan == Scan::kFrame) good += decode_all(found.body);
      good += decode_all({exact.get(), frame.size()});
    }
  }
  EXPECT_GT(good, 0u) << "seed " << seed;
}

TEST(Wire, ListsAndResultsComeBack) {
  const std::vector<std::string> lists[] = {{}, {""}, {"a", "", std::string("\0b", 2)}};
  for (const auto& list : lists) {
    const auto back = unpack(pack(list));
    ASSERT_TRUE(back);
    EXPECT_EQ(*back, list);
  }
  EXPECT_FALSE(unpack("abc"));
  EXPECT_FALSE(unpack(pack(lists[2]).substr(1)));
  EXPECT_EQ(unpack_result(pack_result(std::string("v"))).value(), "v");
  const Status failed = unpack_result(pack_result(Status(Code::kDevice, "why"))).status();
  EXPECT_EQ(failed.to_string(), "device: why");
  EXPECT_EQ(unpack_result("ab").status().code(), Code::kInternal);
}

TEST(Wire, TextFromOutsideIsMadePrintable) {
  EXPECT_EQ(printable("a\n\x1b[31mb\x7f"), "a??[31mb?");
  EXPECT_EQ(printable(std::string(5000, 'x')).size(), kTextLimit);
}

TEST(Auth, MacsDependOnSecretAndPartsAndOnWhereTheyEnd) {
  const Secret a("a"), b("b"), none("");
  EXPECT_TRUE(equal(mac_of(a, {"x", "y"}), mac_of(a, {"x", "y"})));
  EXPECT_FALSE(equal(mac_of(a, {"x", "y"}), mac_of(b, {"x", "y"})));
  EXPECT_FALSE(equal(mac_of(a, {"x", "y"}), mac_of(none, {"x", "y"})));
  EXPECT_FALSE(equal(mac_of(a, {"x", "y"}), mac_of(a, {"xy", ""})));
  EXPECT_FALSE(equal(mac_of(a, {"x", "y"}), mac_of(a, {"x", "y", ""})));
  EXPECT_TRUE(equal(mac_of(none, {}), mac_of(none, {})));
}

// python3: hmac.new(b"key", struct.pack("<Q", 4) + b"text", "sha256").hexdigest()
TEST(Auth, TheMacIsHmacSha256) {
  EXPECT_EQ(hex(mac_of(Secret("key"), {"text"})), "7313b753e5975c521530838693522420dceefeab39ecaa7094de7594e939b0e1");
}

TEST(Auth, OneSidesProofIsNotTheOthers) {
  const Secret secret("s");
  const Mac rank = rank_proof(secret, "hello", "challenge");
  EXPECT_FALSE(equal(rank, store_proof(secret, {"hello", "challenge", ""})));
  EXPECT_FALSE(equal(rank, rank_proof(secret, "hello", "another challenge")));
  EXPECT_FALSE(equal(rank, rank_proof(secret, "another hello", "challenge")));
  EXPECT_FALSE(equal(store_proof(secret, {"h", "c", "yes"}), store_proof(secret, {"h", "c", "no"})));
}

TEST(Auth, NoncesAreFresh) {
  const auto a = fresh_nonce(), b = fresh_nonce();
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE(a.value(), b.value());
}

}  // namespace
}  // namespace shardcomm::bootstrap
