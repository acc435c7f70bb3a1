// The bytes that cross a tcp store's connections. Pure functions over bytes, so that they can be fuzzed.
//
// Frame: u32 magic "SCMB", u8 type, 3 zero bytes, u32 body length, body. Integers are little-endian; texts and byte
// strings are a u32 length and the bytes. A connection starts with hello, challenge, proof, verdict (see auth.h); these
// four, magic and header keep their form for all time, so that two versions can tell each other that they differ. The
// version in hello and challenge governs the frames that follow.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/bootstrap.h"  // pack, unpack
#include "shardcomm/status.h"
#include "shardcomm/types.h"

namespace shardcomm::bootstrap {

inline constexpr uint32_t kProtocolVersion = 1;
inline constexpr size_t kHeaderBytes = 12;
inline constexpr size_t kStrangerBodyLimit = 1024;  // of frames from connections that have not proven the secret
inline constexpr size_t kKeyLimit = 1024;
inline constexpr size_t kValueLimit = size_t{64} << 20;
inline constexpr size_t kMemberBodyLimit = kValueLimit + kKeyLimit + 64;
inline constexpr size_t kTextLimit = 700;  // of a verdict's or goodbye's text: longer ones are cut

using Nonce = std::array<uint8_t, 32>;
using Mac = std::array<uint8_t, 32>;

enum class FrameType : uint8_t { kHello = 1, kChallenge, kProof, kVerdict, kSet, kGet, kForget, kReply, kGoodbye };

struct Frame {
  FrameType type;
  std::string_view body;  // points into the scanned bytes
  size_t bytes;           // of header and body
};

// kBad: these bytes are not ours, or longer than body_limit. Found as soon as the bytes that are there show it.
enum class Scan { kMore, kFrame, kBad };
Scan scan_frame(std::string_view bytes, size_t body_limit, Frame& frame);

struct Hello {  // rank to store
  uint32_t version = kProtocolVersion;
  Rank rank = 0;
  int32_t world_size = 0;
  uint32_t pid = 0;  // for messages only
  Nonce nonce{};
};
struct Challenge {  // store to rank
  uint32_t version = kProtocolVersion;
  Nonce nonce{};
};
struct Proof {  // rank to store
  Mac mac{};
};
enum class Outcome : uint8_t { kAdmitted = 0, kOtherSecret = 1, kRefused = 2 };
struct Verdict {  // store to rank; mac is the store's own proof
  Outcome outcome = Outcome::kAdmitted;
  Code code = Code::kOk;
  std::string text;
  Mac mac{};
};
struct SetRequest {
  uint32_t id;  // chosen by the rank, repeated in the reply
  std::string_view key, value;
};
struct GetRequest {
  uint32_t id;
  uint64_t timeout_ms;
  std::string_view key;
};
struct ForgetRequest {
  uint32_t id;
  std::string_view keys;  // packed list
};
struct Reply {
  uint32_t id;
  Code code;
  std::string_view payload;  // the value, or the error's text
};

// Whole frames.
std::string encode(const Hello& hello);
std::string encode(const Challenge& challenge);
std::string encode(const Proof& proof);
std::string encode(const Verdict& verdict);
std::string encode(const SetRequest& request);
std::string encode(const GetRequest& request);
std::string encode(const ForgetRequest& request);
std::string encode_reply_head(uint32_t id, Code code, size_t payload_bytes);  // the payload's bytes follow it
std::string encode_goodbye(std::string_view text);

// Bodies. Nothing where they are malformed: too short, too long, a value out of its range.
std::optional<Hello> decode_hello(std::string_view body);
std::optional<Challenge> decode_challenge(std::string_view body);
std::optional<Proof> decode_proof(std::string_view body);
std::optional<Verdict> decode_verdict(std::string_view body);
std::optional<SetRequest> decode_set(std::string_view body);
std::optional<GetRequest> decode_get(std::string_view body);
std::optional<ForgetRequest> decode_forget(std::string_view body);
std::optional<Reply> decode_reply(std::string_view body);
std::optional<std::string> decode_goodbye(std::string_view body);

// The part of a verdict that the store's proof covers: its body without the mac.
std::string_view signed_part(std::string_view verdict_body);

// A value, or the failure to produce it, as bytes that one rank sends to the others.
std::string pack_result(const Result<std::string>& result);
Result<std::string> unpack_result(std::string_view bytes);

// Text from outside, fit for a message: control characters become '?', at most kTextLimit bytes.
std::string printable(std::string_view text);

}  // namespace shardcomm::bootstrap
