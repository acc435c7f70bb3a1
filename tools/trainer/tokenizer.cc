#include "tools/trainer/tokenizer.h"

namespace shardcomm::trainer {

std::vector<Token> ByteTokenizer::encode(std::string_view text) const {
  std::vector<Token> tokens(text.size());
  for (size_t i = 0; i < text.size(); ++i) tokens[i] = static_cast<unsigned char>(text[i]);
  return tokens;
}

std::string ByteTokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) {
    if (token >= 0 && token < 256) text.push_back(static_cast<char>(token));
  }
  return text;
}

}  // namespace shardcomm::trainer
