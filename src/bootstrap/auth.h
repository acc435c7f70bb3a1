// How two ends of a connection prove to each other that they know the job secret, without sending it.
//
// The rank sends hello (with a nonce), the store a challenge (with a nonce), the rank its proof, the store its verdict
// with its own proof. Proofs are HMAC-SHA-256 keyed by the secret over the sender's role and all that was said before,
// nonces, rank and versions included; so one side's proof is never good as the other's, nor in another conversation.
// The rank goes first: who merely connects to the store learns nothing to guess the secret from.
// It authenticates who speaks, not each later byte: on a network where others can rewrite traffic, use a tunnel.
#pragma once
#include <string>
#include <string_view>

#include "bootstrap/wire.h"

namespace shardcomm::bootstrap {

// Bytes that are wiped when they go. An empty secret is a valid key: it keeps strangers out, not attackers.
class Secret {
 public:
  explicit Secret(std::string_view bytes) : bytes_(bytes) {}
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = delete;
  ~Secret();
  std::string_view view() const noexcept { return bytes_; }
  bool empty() const noexcept { return bytes_.empty(); }

 private:
  std::string bytes_;
};

Result<Nonce> fresh_nonce();

// Bodies as they crossed the wire.
Mac rank_proof(const Secret& secret, std::string_view hello_body, std::string_view challenge_body);
struct StoreProofInput {
  std::string_view hello_body, challenge_body, verdict_signed_part;
};
Mac store_proof(const Secret& secret, const StoreProofInput& said);

// HMAC-SHA-256 over the parts, each preceded by its length.
Mac mac_of(const Secret& secret, std::initializer_list<std::string_view> parts);

bool equal(const Mac& a, const Mac& b) noexcept;  // in a time that does not depend on the bytes

std::string hex(std::span<const uint8_t> bytes);

}  // namespace shardcomm::bootstrap
