#include "bootstrap/tcp/client.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <thread>

#include "base/log.h"

namespace shardcomm::bootstrap {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kFirstPause = std::chrono::milliseconds(5);
constexpr auto kLongestPause = std::chrono::milliseconds(200);
constexpr auto kConnectLimit = std::chrono::seconds(3);    // of one attempt
constexpr auto kChallengeLimit = std::chrono::seconds(5);  // after it: the listener may be no store at all
constexpr auto kResolveEvery = std::chrono::seconds(2);    // spares the name server

struct Attempt {
  Status status;
  bool may_retry = false;
};

Attempt final_attempt(Status status) { return {std::move(status), false}; }
Attempt retry(Status status) { return {std::move(status), true}; }

// A closed or silent connection is a store that is starting, ending, or too full of strangers for the moment.
Attempt failed_exchange(const Status& status) {
  return {status, status.code() == Code::kPeerLost || status.code() == Code::kTimedOut};
}

Attempt other_secret(const TcpClient::Dial& to) {
  return final_attempt(Status(
      Code::kFailedPrecondition,
      fmt::format("the store at {} has another job secret (here SHARDCOMM_JOB_SECRET is {}); all ranks need the same",
                  to.endpoint.text(), to.secret.empty() ? "unset" : "set")));
}

Attempt judge(const TcpClient::Dial& to, const std::string& hello_body, const std::string& challenge_body,
              std::string_view verdict_body) {
  const std::optional<Verdict> verdict = decode_verdict(verdict_body);
  if (!verdict) return final_attempt(Status(Code::kFailedPrecondition, "the store sent a malformed verdict"));
  const Mac expected = store_proof(to.secret, {hello_body, challenge_body, signed_part(verdict_body)});
  if (!equal(verdict->mac, expected)) {
    if (verdict->outcome == Outcome::kOtherSecret) return other_secret(to);
    return final_attempt(
        Status(Code::kFailedPrecondition,
               fmt::format("what listens at {} did not prove that it knows the job secret", to.endpoint.text())));
  }
  if (verdict->outcome == Outcome::kAdmitted) return {};
  return final_attempt(Status(verdict->code, printable(verdict->text)));
}

// hello, challenge, proof, verdict: see auth.h.
Attempt introduce(FrameStream& stream, const TcpClient::Dial& to, Deadline deadline) {
  const Result<Nonce> nonce = fresh_nonce();
  if (!nonce.ok()) return final_attempt(nonce.status());
  Hello hello;
  hello.rank = to.rank;
  hello.world_size = to.world_size;
  hello.pid = static_cast<uint32_t>(getpid());
  hello.nonce = nonce.value();
  const std::string hello_frame = encode(hello);
  if (Status sent = stream.send(hello_frame, deadline); !sent.ok()) return failed_exchange(sent);

  Result<Frame> answer = stream.receive(kStrangerBodyLimit, std::min(deadline, Clock::now() + kChallengeLimit));
  if (!answer.ok()) return failed_exchange(answer.status());
  const std::string hello_body = hello_frame.substr(kHeaderBytes);
  const std::string challenge_body(answer->body);
  if (answer->type != FrameType::kChallenge || !decode_challenge(challenge_body))
    return final_attempt(Status(Code::kFailedPrecondition, "the store's first message is not a challenge"));

  const Proof proof{rank_proof(to.secret, hello_body, challenge_body)};
  if (Status sent = stream.send(encode(proof), deadline); !sent.ok()) return failed_exchange(sent);
  // No shorter limit here: from now on the store may have admitted this rank, and a second try would be a duplicate.
  answer = stream.receive(kStrangerBodyLimit, deadline);
  if (!answer.ok()) return failed_exchange(answer.status());
  if (answer->type != FrameType::kVerdict)
    return final_attempt(Status(Code::kFailedPrecondition, "the store's second message is not a verdict"));
  return judge(to, hello_body, challenge_body, answer->body);
}

// Trying again can not help where this process lacks something.
bool is_ours(const Status& status) {
  const int error = status.native_value();
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS || error == EACCES || error == EPERM;
}

Attempt try_addresses(const std::vector<Address>& addresses, const TcpClient::Dial& to, Deadline deadline,
                      FrameStream& stream) {
  Attempt last = retry(Status(Code::kUnavailable, "no address"));
  for (const Address& address : addresses) {
    Result<Fd> fd = connect_to(address, std::min(deadline, Clock::now() + kConnectLimit));
    if (!fd.ok()) {
      last = {fd.status(), !is_ours(fd.status())};
    } else {
      stream = FrameStream(std::move(fd).value());
      last = introduce(stream, to, deadline);
      if (last.status.ok()) return last;
      if (last.may_retry) last.status = last.status.context("joining at " + address.text());
    }
    if (!last.may_retry) return last;
  }
  return last;
}

// Spread, so that a thousand ranks do not knock all at once.
std::chrono::microseconds jittered(std::chrono::microseconds pause) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return pause / 2 + std::chrono::microseconds(random() % static_cast<uint64_t>(pause.count()));
}

}  // namespace

Result<TcpClient> TcpClient::dial(const Dial& to, Deadline deadline) {
  const Clock::time_point start = Clock::now();
  std::chrono::microseconds pause = kFirstPause;
  std::vector<Address> addresses;
  Clock::time_point resolve_after = start;
  for (;;) {
    Attempt attempt = retry(Status());
    if (Clock::now() >= resolve_after) {
      Result<std::vector<Address>> resolved = resolve(to.endpoint);
      // A name may become known only when rank 0's machine starts.
      if (resolved.ok()) addresses = std::move(resolved).value();
      attempt.status = resolved.status();
      if (!resolved.ok() && resolve_after == start)
        log(Level::kWarn, "rank {} goes on trying: {}", to.rank, resolved.status().message());
      resolve_after = Clock::now() + kResolveEvery;
    }
    FrameStream stream;
    if (!addresses.empty()) attempt = try_addresses(addresses, to, deadline, stream);
    if (!addresses.empty() && attempt.status.ok()) return TcpClient(std::move(stream));
    if (!attempt.may_retry) return attempt.status.context(fmt::format("rank {} joins", to.rank));
    if (Clock::now() >= deadline) {
      const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
      return Status(Code::kTimedOut, fmt::format("rank {} did not reach rank 0 at {} within {} ms: {}", to.rank,
                                                 to.endpoint.text(), waited.count(), attempt.status.message()));
    }
    std::this_thread::sleep_until(std::min(deadline, Clock::now() + jittered(pause)));
    pause = std::min<std::chrono::microseconds>(pause * 2, kLongestPause);
  }
}

Status TcpClient::set(std::string_view key, std::string_view value, Deadline deadline) {
  const uint32_t id = ++last_id_;
  return ask(encode(SetRequest{id, key, value}), id, deadline).status();
}

Result<std::string> TcpClient::get(std::string_view key, Deadline deadline) {
  const uint32_t id = ++last_id_;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::max(deadline, Clock::now()) - Clock::now());
  const auto timeout_ms = static_cast<uint64_t>(std::max<int64_t>(left.count(), 0));
  return ask(encode(GetRequest{id, timeout_ms, key}), id, deadline);
}

Status TcpClient::forget(std::string_view packed_keys, Deadline deadline) {
  const uint32_t id = ++last_id_;
  return ask(encode(ForgetRequest{id, packed_keys}), id, deadline).status();
}

Result<std::string> TcpClient::ask(std::string_view request, uint32_t id, Deadline deadline) {
  SHARDCOMM_TRY(broken_);
  const Deadline last_moment = std::max(deadline, Clock::now()) + kAnswerGrace;
  const Status sent = stream_.send(request, last_moment);
  if (sent.code() == Code::kTimedOut)  // half a request may be under way: the next one would be read as its rest
    return broken_ = Status(Code::kTimedOut, "rank 0's store does not read what it is sent");
  // Where sending failed otherwise the store is gone, but its last words may wait in the socket.
  return await_reply(id, last_moment);
}

Result<std::string> TcpClient::await_reply(uint32_t id, Deadline deadline) {
  for (;;) {
    Result<Frame> frame = stream_.receive(kMemberBodyLimit, deadline);
    if (frame.status().code() == Code::kTimedOut) return Status(Code::kTimedOut, "rank 0's store does not answer");
    if (!frame.ok()) return rank_0_is_gone(frame.status());
    if (frame->type == FrameType::kGoodbye) {
      const std::optional<std::string> words = decode_goodbye(frame->body);
      return Status(Code::kPeerLost, words ? printable(*words) : "rank 0 left the meeting");
    }
    const std::optional<Reply> reply = decode_reply(frame->body);
    if (frame->type != FrameType::kReply || !reply)
      return Status(Code::kInternal, "rank 0's store sent a malformed reply");
    if (reply->id != id) continue;  // to a request that was given up
    if (reply->code != Code::kOk) return Status(reply->code, std::string(reply->payload));
    return std::string(reply->payload);
  }
}

Status TcpClient::rank_0_is_gone(const Status& why) {
  return Status(Code::kPeerLost, fmt::format("rank 0 is gone: {}", why.message()));
}

}  // namespace shardcomm::bootstrap
