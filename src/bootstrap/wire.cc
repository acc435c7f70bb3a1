// Encoding and decoding of frames; nothing here trusts a length it has not compared with the bytes that are there.
#include "bootstrap/wire.h"

#include <algorithm>
#include <cstring>

namespace shardcomm::bootstrap {
namespace {

constexpr std::string_view kMagic = "SCMB";
constexpr std::string_view kZeros("\0\0\0", 3);

void put_u32(std::string& out, uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(value >> shift & 0xff));
}

void put_u64(std::string& out, uint64_t value) {
  put_u32(out, static_cast<uint32_t>(value));
  put_u32(out, static_cast<uint32_t>(value >> 32));
}

void put_bytes(std::string& out, std::string_view bytes) {
  put_u32(out, static_cast<uint32_t>(bytes.size()));
  out.append(bytes);
}

template <size_t n>
void put_array(std::string& out, const std::array<uint8_t, n>& bytes) {
  out.append(reinterpret_cast<const char*>(bytes.data()), n);
}

uint32_t load_u32(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return value;
}

// Takes fields off the front. After the first that does not fit, everything reads as zero and done() is false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  std::string_view take(size_t count) {
    if (!good_ || count > bytes_.size()) {
      good_ = false;
      return {};
    }
    const std::string_view front = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return front;
  }
  uint8_t u8() {
    const std::string_view b = take(1);
    return good_ ? static_cast<uint8_t>(b[0]) : uint8_t{0};
  }
  uint32_t u32() {
    const std::string_view b = take(4);
    return good_ ? load_u32(b) : 0;
  }
  uint64_t u64() {
    const uint64_t low = u32();
    return low | static_cast<uint64_t>(u32()) << 32;
  }
  std::string_view bytes(size_t limit) {
    const uint32_t count = u32();
    if (count > limit) good_ = false;
    return take(count);
  }
  Code code() {
    const uint32_t value = u32();
    if (value > static_cast<uint32_t>(Code::kDataLoss)) good_ = false;
    return good_ ? static_cast<Code>(value) : Code::kInternal;
  }
  template <size_t n>
  std::array<uint8_t, n> array() {
    std::array<uint8_t, n> out{};
    const std::string_view b = take(n);
    if (good_) std::memcpy(out.data(), b.data(), n);
    return out;
  }
  std::string_view rest() { return take(bytes_.size()); }
  bool empty() const { return bytes_.empty(); }
  bool good() const { return good_; }
  bool done() const { return good_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool good_ = true;
};

std::string header(FrameType type, size_t body_bytes) {
  std::string out;
  out.reserve(kHeaderBytes + std::min(body_bytes, size_t{512}));
  out.append(kMagic);
  out.push_back(static_cast<char>(type));
  out.append(kZeros);
  put_u32(out, static_cast<uint32_t>(body_bytes));
  return out;
}

std::string framed(FrameType type, const std::string& body) { return header(type, body.size()) + body; }

std::string_view cut(std::string_view text) { return text.substr(0, kTextLimit); }

template <class T>
std::optional<T> if_done(const Reader& reader, T value) {
  if (!reader.done()) return std::nullopt;
  return value;
}

}  // namespace

Scan scan_frame(std::string_view bytes, size_t body_limit, Frame& frame) {
  const size_t known = std::min(bytes.size(), kMagic.size());
  if (bytes.substr(0, known) != kMagic.substr(0, known)) return Scan::kBad;
  if (bytes.size() < kHeaderBytes) return Scan::kMore;
  const auto type = static_cast<uint8_t>(bytes[4]);
  if (type < static_cast<uint8_t>(FrameType::kHello) || type > static_cast<uint8_t>(FrameType::kGoodbye))
    return Scan::kBad;
  const size_t body_bytes = load_u32(bytes.substr(8));
  if (bytes.substr(5, 3) != kZeros || body_bytes > body_limit) return Scan::kBad;
  if (bytes.size() - kHeaderBytes < body_bytes) return Scan::kMore;
  frame = {static_cast<FrameType>(type), bytes.substr(kHeaderBytes, body_bytes), kHeaderBytes + body_bytes};
  return Scan::kFrame;
}

std::string encode(const Hello& hello) {
  std::string body;
  put_u32(body, hello.version);
  put_u32(body, static_cast<uint32_t>(hello.rank));
  put_u32(body, static_cast<uint32_t>(hello.world_size));
  put_u32(body, hello.pid);
  put_array(body, hello.nonce);
  return framed(FrameType::kHello, body);
}

std::string encode(const Challenge& challenge) {
  std::string body;
  put_u32(body, challenge.version);
  put_array(body, challenge.nonce);
  return framed(FrameType::kChallenge, body);
}

std::string encode(const Proof& proof) {
  std::string body;
  put_array(body, proof.mac);
  return framed(FrameType::kProof, body);
}

std::string encode(const Verdict& verdict) {
  std::string body;
  body.push_back(static_cast<char>(verdict.outcome));
  put_u32(body, static_cast<uint32_t>(verdict.code));
  put_bytes(body, cut(verdict.text));
  put_array(body, verdict.mac);
  return framed(FrameType::kVerdict, body);
}

std::string encode(const SetRequest& request) {
  std::string out = header(FrameType::kSet, 12 + request.key.size() + request.value.size());
  put_u32(out, request.id);
  put_bytes(out, request.key);
  put_bytes(out, request.value);
  return out;
}

std::string encode(const GetRequest& request) {
  std::string body;
  put_u32(body, request.id);
  put_u64(body, request.timeout_ms);
  put_bytes(body, request.key);
  return framed(FrameType::kGet, body);
}

std::string encode(const ForgetRequest& request) {
  std::string body;
  put_u32(body, request.id);
  put_bytes(body, request.keys);
  return framed(FrameType::kForget, body);
}

std::string encode_reply_head(uint32_t id, Code code, size_t payload_bytes) {
  std::string out = header(FrameType::kReply, 12 + payload_bytes);
  put_u32(out, id);
  put_u32(out, static_cast<uint32_t>(code));
  put_u32(out, static_cast<uint32_t>(payload_bytes));
  return out;
}

std::string encode_goodbye(std::string_view text) {
  std::string body;
  put_bytes(body, cut(text));
  return framed(FrameType::kGoodbye, body);
}

std::optional<Hello> decode_hello(std::string_view body) {
  Reader in(body);
  Hello hello;
  hello.version = in.u32();
  hello.rank = static_cast<Rank>(in.u32());
  hello.world_size = static_cast<int32_t>(in.u32());
  hello.pid = in.u32();
  hello.nonce = in.array<32>();
  return if_done(in, hello);
}

std::optional<Challenge> decode_challenge(std::string_view body) {
  Reader in(body);
  Challenge challenge;
  challenge.version = in.u32();
  challenge.nonce = in.array<32>();
  return if_done(in, challenge);
}

std::optional<Proof> decode_proof(std::string_view body) {
  Reader in(body);
  Proof proof;
  proof.mac = in.array<32>();
  return if_done(in, proof);
}

std::optional<Verdict> decode_verdict(std::string_view body) {
  Reader in(body);
  Verdict verdict;
  const uint8_t outcome = in.u8();
  verdict.outcome = static_cast<Outcome>(outcome);
  verdict.code = in.code();
  verdict.text = in.bytes(kTextLimit);
  verdict.mac = in.array<32>();
  if (outcome > static_cast<uint8_t>(Outcome::kRefused)) return std::nullopt;
  if ((verdict.outcome == Outcome::kAdmitted) != (verdict.code == Code::kOk)) return std::nullopt;
  return if_done(in, verdict);
}

std::optional<SetRequest> decode_set(std::string_view body) {
  Reader in(body);
  SetRequest request{};
  request.id = in.u32();
  request.key = in.bytes(kKeyLimit);
  request.value = in.bytes(kValueLimit);
  return if_done(in, request);
}

std::optional<GetRequest> decode_get(std::string_view body) {
  Reader in(body);
  GetRequest request{};
  request.id = in.u32();
  request.timeout_ms = in.u64();
  request.key = in.bytes(kKeyLimit);
  return if_done(in, request);
}

std::optional<ForgetRequest> decode_forget(std::string_view body) {
  Reader in(body);
  ForgetRequest request{};
  request.id = in.u32();
  request.keys = in.bytes(kValueLimit);
  return if_done(in, request);
}

std::optional<Reply> decode_reply(std::string_view body) {
  Reader in(body);
  Reply reply{};
  reply.id = in.u32();
  reply.code = in.code();
  reply.payload = in.bytes(kValueLimit);
  return if_done(in, reply);
}

std::optional<std::string> decode_goodbye(std::string_view body) {
  Reader in(body);
  std::string text(in.bytes(kTextLimit));
  return if_done(in, std::move(text));
}

std::string_view signed_part(std::string_view verdict_body) {
  return verdict_body.substr(0, verdict_body.size() - std::min(verdict_body.size(), std::tuple_size<Mac>::value));
}

std::string pack(std::span<const std::string> items) {
  size_t bytes = 0;
  for (const std::string& item : items) bytes += 4 + item.size();
  std::string out;
  out.reserve(bytes);
  for (const std::string& item : items) put_bytes(out, item);
  return out;
}

std::optional<std::vector<std::string>> unpack(std::string_view bytes) {
  Reader in(bytes);
  std::vector<std::string> items;
  while (in.good() && !in.empty()) items.emplace_back(in.bytes(kValueLimit));
  return if_done(in, std::move(items));
}

std::string pack_result(const Result<std::string>& result) {
  std::string out;
  put_u32(out, static_cast<uint32_t>(result.status().code()));
  out.append(result.ok() ? std::string_view(result.value()) : result.status().message());
  return out;
}

Result<std::string> unpack_result(std::string_view bytes) {
  Reader in(bytes);
  const Code code = in.code();
  if (!in.good()) return Status(Code::kInternal, "a rank sent a malformed contribution");
  std::string rest(in.rest());
  if (code != Code::kOk) return Status(code, std::move(rest));
  return rest;
}

std::string printable(std::string_view text) {
  std::string out(cut(text));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return out;
}

}  // namespace shardcomm::bootstrap
