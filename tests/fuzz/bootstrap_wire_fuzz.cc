// Bytes from the network into everything of bootstrap that reads them: frames one after the other as the store and the
// ranks scan them, each body into every decoder, and what decodes back into bytes that must decode to the same.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "bootstrap/wire.h"

namespace {

using namespace shardcomm::bootstrap;

void require(bool condition) {
  if (!condition) std::abort();
}

// What was decoded and encoded again is the same frame: nothing is lost or invented.
template <class T>
void require_round_trip(const std::optional<T>& decoded, std::string_view body) {
  if (decoded) require(std::string_view(encode(*decoded)).substr(kHeaderBytes) == body);
}

void decode_all(std::string_view body) {
  require_round_trip(decode_hello(body), body);
  require_round_trip(decode_challenge(body), body);
  require_round_trip(decode_proof(body), body);
  require_round_trip(decode_verdict(body), body);
  require_round_trip(decode_set(body), body);
  require_round_trip(decode_get(body), body);
  require_round_trip(decode_forget(body), body);
  if (const auto reply = decode_reply(body)) {
    const std::string head = encode_reply_head(reply->id, reply->code, reply->payload.size());
    require(head.substr(kHeaderBytes) + std::string(reply->payload) == body);
  }
  if (const auto text = decode_goodbye(body)) {
    require(std::string_view(encode_goodbye(*text)).substr(kHeaderBytes) == body);
    require(printable(*text).size() <= kTextLimit);
  }
  if (const auto items = unpack(body)) require(pack(*items) == body);
  if (const auto result = unpack_result(body); result.ok()) require(pack_result(result) == body);
  require(signed_part(body).size() <= body.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  std::string_view rest(reinterpret_cast<const char*>(data), bytes);
  decode_all(rest);
  for (const size_t limit : {kStrangerBodyLimit, kMemberBodyLimit}) {
    std::string_view stream = rest;
    Frame frame{};
    while (scan_frame(stream, limit, frame) == Scan::kFrame) {
      require(frame.bytes >= kHeaderBytes && frame.bytes <= stream.size() && frame.body.size() <= limit);
      decode_all(frame.body);
      stream.remove_prefix(frame.bytes);
    }
  }
  return 0;
}
