// Text to tokens and back: one token per byte, and one more that ends a document.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardcomm::trainer {

using Token = uint16_t;

class ByteTokenizer {
 public:
  static constexpr Token kEndOfText = 256;

  size_t size() const { return 257; }  // of the vocabulary
  Token end_of_text() const { return kEndOfText; }
  std::vector<Token> encode(std::string_view text) const;     // without an end-of-text
  std::string decode(std::span<const int32_t> tokens) const;  // what is not a byte is left out
};

}  // namespace shardcomm::trainer
