#include "tools/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace shardcomm::tools {
namespace {

constexpr std::string_view kSuffixes = "KMGT";

}  // namespace

std::optional<size_t> parse_bytes(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || number < 0 || !std::isfinite(number)) return std::nullopt;
  std::string_view suffix = text.substr(static_cast<size_t>(end - text.data()));
  if (!suffix.empty()) {
    const size_t power = kSuffixes.find(static_cast<char>(std::toupper(static_cast<unsigned char>(suffix[0]))));
    if (power == std::string_view::npos) return std::nullopt;
    number = std::ldexp(number, 10 * static_cast<int>(power + 1));
    suffix.remove_prefix(1);
    if (!suffix.empty() && suffix != "B" && suffix != "iB") return std::nullopt;
  }
  if (number != std::floor(number) || number >= 0x1p63) return std::nullopt;
  return static_cast<size_t>(number);
}

std::string bytes_text(size_t bytes) {
  size_t power = 0;
  while (power < kSuffixes.size() && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++power;
  }
  return power == 0 ? std::to_string(bytes) : fmt::format("{}{}", bytes, kSuffixes[power - 1]);
}

CLI::Validator byte_size(size_t least) {
  return {[least](std::string& text) -> std::string {
            const auto bytes = parse_bytes(text);
            if (!bytes || *bytes < least)
              return fmt::format("must be a size of at least {} bytes like 1000, 64K, 256M or 1G, not '{}'", least,
                                 text);
            text = std::to_string(*bytes);
            return {};
          },
          "", "byte_size"};
}

CLI::Validator whole_number(int64_t least, int64_t most) {
  return {[least, most](std::string& text) -> std::string {
            int64_t value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (error == std::errc{} && end == text.data() + text.size() && value >= least && value <= most) return {};
            return fmt::format("must be a whole number from {} to {}, not '{}'", least, most, text);
          },
          "", "whole_number"};
}

CLI::Validator one_of(std::vector<std::string> words) {
  const std::string list = fmt::format("{}", fmt::join(words, ", "));
  return {[words = std::move(words), list](std::string& text) -> std::string {
            if (std::find(words.begin(), words.end(), text) != words.end()) return {};
            return fmt::format("must be one of {}, not '{}'", list, text);
          },
          "{" + list + "}", "one_of"};
}

}  // namespace shardcomm::tools
