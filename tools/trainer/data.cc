#include "tools/trainer/data.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>

#include "tools/trainer/order.h"

namespace shardcomm::trainer {
namespace {

Result<std::string> read_file(const std::string& path) {
  const auto close = [](std::FILE* f) { std::fclose(f); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "rb"), close);
  if (file == nullptr) return Status::native(Origin::kErrno, errno, "open '" + path + "'");
  std::string bytes;
  std::array<char, 65536> piece;
  while (const size_t got = std::fread(piece.data(), 1, piece.size(), file.get())) bytes.append(piece.data(), got);
  if (std::ferror(file.get())) return Status::native(Origin::kErrno, errno, "read '" + path + "'");
  return bytes;
}

Result<std::vector<Token>> read_tokens(const std::vector<std::string>& files, const ByteTokenizer& tokenizer) {
  std::vector<Token> tokens;
  for (const std::string& path : files) {
    SHARDCOMM_TRY_ASSIGN(const std::string bytes, read_file(path));
    const std::vector<Token> encoded = tokenizer.encode(bytes);
    tokens.insert(tokens.end(), encoded.begin(), encoded.end());
    tokens.push_back(tokenizer.end_of_text());
  }
  return tokens;
}

Status check_length(std::string_view what, size_t tokens, size_t seq) {
  if (tokens > seq) return {};
  return Status(Code::kInvalidArgument, std::string(what) + " has " + std::to_string(tokens) +
                                            " tokens; one sample takes " + std::to_string(seq + 1) + " (seq + 1)");
}

}  // namespace

Result<Data> Data::load(const DataOptions& options, const ByteTokenizer& tokenizer) {
  if (options.files.empty()) return Status(Code::kInvalidArgument, "no data file is given");
  if (options.seq == 0) return Status(Code::kInvalidArgument, "a sample holds at least one token");
  Data data(options.seq, options.seed);
  SHARDCOMM_TRY_ASSIGN(data.train_, read_tokens(options.files, tokenizer));
  if (options.validation_files.empty()) {
    const auto split = data.train_.end() - static_cast<std::ptrdiff_t>(data.train_.size() / 10);
    data.validation_.assign(split, data.train_.end());
    data.train_.erase(split, data.train_.end());
  } else {
    SHARDCOMM_TRY_ASSIGN(data.validation_, read_tokens(options.validation_files, tokenizer));
  }
  SHARDCOMM_TRY(check_length("the training text", data.train_.size(), options.seq));
  SHARDCOMM_TRY(check_length(
      options.validation_files.empty() ? "the last tenth of the text, kept for validation," : "the validation text",
      data.validation_.size(), options.seq));
  return data;
}

void Data::copy(const std::vector<Token>& text, uint64_t sample, Samples* out) const {
  const auto begin = text.begin() + static_cast<std::ptrdiff_t>(sample * seq_);
  const auto end = begin + static_cast<std::ptrdiff_t>(seq_);
  out->tokens.insert(out->tokens.end(), begin, end);
  out->targets.insert(out->targets.end(), begin + 1, end + 1);
}

void Data::train(uint64_t first, size_t samples, Samples* out) const {
  out->tokens.clear();
  out->targets.clear();
  for (size_t i = 0; i < samples; ++i) copy(train_, sample_at(first + i, train_samples(), seed_), out);
}

void Data::validation(uint64_t first, size_t samples, Samples* out) const {
  out->tokens.clear();
  out->targets.clear();
  for (size_t i = 0; i < samples; ++i) copy(validation_, first + i, out);
}

// ---- The project's own text

namespace {

namespace fs = std::filesystem;

bool is_text(const fs::path& path) {
  static constexpr std::array<std::string_view, 11> kExtensions = {".h",   ".c",     ".cc", ".cu", ".cuh", ".md",
                                                                   ".txt", ".cmake", ".sh", ".py", ".in"};
  const std::string extension = path.extension().string();
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

bool is_left_out(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with(".") || name.starts_with("build") || name == "out";
}

}  // namespace

Result<std::vector<std::string>> list_text_files(const std::string& root) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator entry(root, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;  // an entry that vanished meanwhile is neither
    if (entry->is_directory(ignored) && is_left_out(entry->path())) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file(ignored) && !entry->is_symlink(ignored) && is_text(entry->path())) {
      files.push_back(entry->path().string());
    }
  }
  if (error) return Status::native(Origin::kErrno, error.value(), "list directory '" + root + "'");
  if (files.empty()) return Status(Code::kUnavailable, "no source or documentation file below '" + root + "'");
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace shardcomm::trainer
