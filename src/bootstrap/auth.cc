// The one user of libcrypto.
#include "bootstrap/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>

#include "base/check.h"

namespace shardcomm::bootstrap {

Secret::~Secret() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

Result<Nonce> fresh_nonce() {
  Nonce nonce;
  size_t filled = 0;
  while (filled < nonce.size()) {
    const ssize_t got = getrandom(nonce.data() + filled, nonce.size() - filled, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::native(Origin::kErrno, errno, "getrandom for a nonce");
    filled += static_cast<size_t>(got);
  }
  return nonce;
}

Mac mac_of(const Secret& secret, std::initializer_list<std::string_view> parts) {
  std::string text;
  for (std::string_view part : parts) {
    uint64_t bytes = part.size();
    for (int i = 0; i < 8; ++i, bytes >>= 8) text.push_back(static_cast<char>(bytes & 0xff));
    text.append(part);
  }
  Mac mac{};
  unsigned int mac_bytes = 0;
  const unsigned char* made =
      HMAC(EVP_sha256(), secret.view().data(), static_cast<int>(secret.view().size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac.data(), &mac_bytes);
  // A MAC that was not computed must never compare equal to another that was not.
  SHARDCOMM_CHECK(made != nullptr && mac_bytes == mac.size(), "libcrypto computes HMAC-SHA-256");
  return mac;
}

Mac rank_proof(const Secret& secret, std::string_view hello_body, std::string_view challenge_body) {
  return mac_of(secret, {"shardcomm bootstrap: rank", hello_body, challenge_body});
}

Mac store_proof(const Secret& secret, const StoreProofInput& said) {
  return mac_of(secret, {"shardcomm bootstrap: store", said.hello_body, said.challenge_body, said.verdict_signed_part});
}

bool equal(const Mac& a, const Mac& b) noexcept { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

std::string hex(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (uint8_t byte : bytes) {
    out.push_back(kDigits[byte >> 4]);
    out.push_back(kDigits[byte & 15]);
  }
  return out;
}

}  // namespace shardcomm::bootstrap
