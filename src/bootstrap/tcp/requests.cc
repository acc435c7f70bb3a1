// What a connection may say to the tcp store, and what the store does then.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "bootstrap/tcp/meeting.h"

namespace shardcomm::bootstrap {
namespace {

constexpr auto kLeavingLimit = std::chrono::seconds(2);
constexpr uint64_t kLongestWaitMs = 10ull * 365 * 24 * 3600 * 1000;

std::shared_ptr<const std::string> text_of(const Status& status) {
  return std::make_shared<const std::string>(status.message());
}

}  // namespace

void TcpMeeting::obey(Connection& c, const Frame& frame) {
  using State = Connection::State;
  if (c.state == State::kHello && frame.type == FrameType::kHello) return challenge(c, frame);
  if (c.state == State::kProof && frame.type == FrameType::kProof) return judge(c, frame);
  if (c.state == State::kMember) {
    if (c.pending) {  // the rank has given up that get
      stop_waiting(c);
      c.pending.reset();
      clear_timer(c);
    }
    switch (frame.type) {
      case FrameType::kSet: return serve_set(c, frame.body);
      case FrameType::kGet: return serve_get(c, frame.body);
      case FrameType::kForget: return serve_forget(c, frame.body);
      case FrameType::kGoodbye: roster_.leave(c.rank); return close(c);
      default: break;
    }
  }
  gone(c, "it sent a message out of turn");
}

void TcpMeeting::challenge(Connection& c, const Frame& frame) {
  const Result<Nonce> nonce = fresh_nonce();
  if (!decode_hello(frame.body) || !nonce.ok()) return gone(c, "its hello is malformed");
  Challenge challenge;
  challenge.nonce = nonce.value();
  std::string bytes = encode(challenge);
  c.hello_body = frame.body;
  c.challenge_body = bytes.substr(kHeaderBytes);
  c.say(std::move(bytes));
  c.state = Connection::State::kProof;
}

void TcpMeeting::judge(Connection& c, const Frame& frame) {
  const std::optional<Proof> proof = decode_proof(frame.body);
  if (!proof) return gone(c, "its proof is malformed");
  const Hello hello = *decode_hello(c.hello_body);
  if (equal(proof->mac, rank_proof(setup_.secret, c.hello_body, c.challenge_body))) {
    const Status admitted = admit(c, hello);
    announce(c, admitted.ok() ? Outcome::kAdmitted : Outcome::kRefused, admitted);
    if (!admitted.ok()) fail_pending();
    return;
  }
  const std::string what =
      fmt::format("a connection from {} as rank {} was refused, it has another job secret", c.peer, hello.rank);
  log(warned_of_secret_ ? Level::kDebug : Level::kWarn, "rank 0: {}", what);
  warned_of_secret_ = true;
  roster_.note(what);
  announce(c, Outcome::kOtherSecret, Status(Code::kFailedPrecondition, "another job secret"));
}

Status TcpMeeting::admit(const Connection& c, const Hello& hello) {
  const std::string who = fmt::format("pid {} at {}", hello.pid, c.peer);
  if (hello.version != kProtocolVersion) {
    return roster_.refuse(
        Status(Code::kFailedPrecondition,
               fmt::format(
                   "rank {} ({}) speaks version {} of the store's protocol, rank 0 version {}: all ranks need the same "
                   "shardcomm",
                   hello.rank, who, hello.version, kProtocolVersion)));
  }
  SHARDCOMM_TRY(roster_.failure());
  return roster_.admit(hello.rank, hello.world_size, who);
}

void TcpMeeting::announce(Connection& c, Outcome outcome, const Status& status) {
  Verdict verdict{outcome, status.code(), std::string(status.message()), {}};
  const std::string unsigned_frame = encode(verdict);
  const std::string_view body = std::string_view(unsigned_frame).substr(kHeaderBytes);
  verdict.mac = store_proof(setup_.secret, {c.hello_body, c.challenge_body, signed_part(body)});
  c.say(encode(verdict));
  if (outcome != Outcome::kAdmitted) {
    c.state = Connection::State::kLeaving;
    return set_timer(c, std::chrono::steady_clock::now() + kLeavingLimit);
  }
  clear_timer(c);
  c.rank = decode_hello(c.hello_body)->rank;
  c.state = Connection::State::kMember;
  members_.splice(members_.end(), strangers_, c.self);
}

void TcpMeeting::serve_set(Connection& c, std::string_view body) {
  const std::optional<SetRequest> request = decode_set(body);
  if (!request) return gone(c, "it sent a malformed set");
  const std::string key(request->key);
  const auto value = std::make_shared<const std::string>(request->value);
  if (!values_.emplace(key, value).second) {
    return answer(c, request->id, Status(Code::kFailedPrecondition, fmt::format("store key '{}' is already set", key)));
  }
  answer(c, request->id, {});
  const auto waiting = waiting_.find(key);
  if (waiting == waiting_.end()) return;
  for (Connection* other : waiting->second) answer_pending(*other, Code::kOk, value);
  waiting_.erase(waiting);
}

void TcpMeeting::serve_get(Connection& c, std::string_view body) {
  const std::optional<GetRequest> request = decode_get(body);
  if (!request) return gone(c, "it sent a malformed get");
  std::string key(request->key);
  if (const auto found = values_.find(key); found != values_.end()) return c.say(request->id, Code::kOk, found->second);
  if (!roster_.failure().ok()) return answer(c, request->id, roster_.failure());
  if (request->timeout_ms == 0) return answer(c, request->id, roster_.timed_out(key));
  waiting_[key].push_back(&c);
  c.pending = {request->id, std::move(key)};
  const std::chrono::milliseconds patience(std::min(request->timeout_ms, kLongestWaitMs));
  set_timer(c, std::chrono::steady_clock::now() + patience);
}

void TcpMeeting::serve_forget(Connection& c, std::string_view body) {
  const std::optional<ForgetRequest> request = decode_forget(body);
  const auto keys = request ? unpack(request->keys) : std::nullopt;
  if (!keys || c.rank != 0) return gone(c, "it sent a malformed forget");
  for (const std::string& key : *keys) values_.erase(key);
  answer(c, request->id, {});
}

void TcpMeeting::answer(Connection& c, uint32_t id, const Status& status) { c.say(id, status.code(), text_of(status)); }

void TcpMeeting::answer_pending(Connection& c, Code code, const std::shared_ptr<const std::string>& payload) {
  c.say(c.pending->id, code, payload);
  c.pending.reset();
  clear_timer(c);
  touched_.push_back(&c);
}

void TcpMeeting::stop_waiting(Connection& c) {
  if (!c.pending) return;
  const auto waiting = waiting_.find(c.pending->key);
  if (waiting == waiting_.end()) return;
  std::erase(waiting->second, &c);
  if (waiting->second.empty()) waiting_.erase(waiting);
}

void TcpMeeting::fail_pending() {
  if (roster_.failure().ok()) return;
  const std::shared_ptr<const std::string> text = text_of(roster_.failure());
  for (auto& [key, connections] : waiting_) {
    for (Connection* c : connections) answer_pending(*c, roster_.failure().code(), text);
  }
  waiting_.clear();
}

}  // namespace shardcomm::bootstrap
