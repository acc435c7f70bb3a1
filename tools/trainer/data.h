// Training and validation text, as tokens in memory, cut into samples of seq tokens and the seq tokens that follow
// them.
#pragma once
#include <string>
#include <vector>

#include "shardcomm/status.h"
#include "tools/trainer/tokenizer.h"

namespace shardcomm::trainer {

struct DataOptions {
  std::vector<std::string> files = {};             // any bytes; one after the other, an end-of-text after each
  std::vector<std::string> validation_files = {};  // none: the last tenth of `files`
  size_t seq = 128;
  uint64_t seed = 0;  // of the training order
};

// Samples one after another: tokens[i] is followed in the text by targets[i].
struct Samples {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
};

class Data {
 public:
  // Fails on a file that cannot be read (named, with the system's reason) and on text too short for one sample.
  static Result<Data> load(const DataOptions& options, const ByteTokenizer& tokenizer);

  uint64_t train_samples() const { return count(train_); }  // in one epoch
  uint64_t validation_samples() const { return count(validation_); }
  size_t train_tokens() const { return train_.size(); }
  size_t validation_tokens() const { return validation_.size(); }

  // The samples at the global positions first .. first + samples (order.h): shuffled, epoch after epoch, without end.
  void train(uint64_t first, size_t samples, Samples* out) const;
  // The validation samples first .. first + samples in the order of the text; the caller keeps within the count.
  void validation(uint64_t first, size_t samples, Samples* out) const;

 private:
  Data(size_t seq, uint64_t seed) : seq_(seq), seed_(seed) {}
  uint64_t count(const std::vector<Token>& text) const { return (text.size() - 1) / seq_; }
  void copy(const std::vector<Token>& text, uint64_t sample, Samples* out) const;

  size_t seq_;
  uint64_t seed_;
  std::vector<Token> train_;
  std::vector<Token> validation_;
};

// All source and documentation files below a directory, sorted by path; hidden, build and output directories left out.
Result<std::vector<std::string>> list_text_files(const std::string& root);

}  // namespace shardcomm::trainer
