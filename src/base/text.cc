// Text of numbers and sizes.
#include "base/text.h"

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <limits>

namespace shardcomm {
namespace {

constexpr std::string_view kSuffixes = "KMGT";

// The power of 1024 that a suffix stands for, in bits: "" 0, "K" 10, "MiB" 20.
std::optional<unsigned> suffix_bits(std::string_view suffix) noexcept {
  if (suffix.empty()) return 0u;
  const char upper = suffix[0] >= 'a' && suffix[0] <= 'z' ? static_cast<char>(suffix[0] - 'a' + 'A') : suffix[0];
  const std::string_view rest = suffix.substr(1);
  const size_t at = kSuffixes.find(upper);
  if (at == std::string_view::npos || !(rest.empty() || rest == "B" || rest == "b" || rest == "iB"))
    return std::nullopt;
  return static_cast<unsigned>(10 * (at + 1));
}

}  // namespace

std::optional<uint64_t> parse_count(std::string_view text) noexcept {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::optional<size_t> parse_size(std::string_view text) noexcept {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto count = parse_count(text.substr(0, digits));
  const auto bits = suffix_bits(text.substr(digits));
  if (!count || !bits || *count > (std::numeric_limits<size_t>::max() >> *bits)) return std::nullopt;
  return static_cast<size_t>(*count) << *bits;
}

std::string size_text(size_t bytes) {
  size_t power = 0;
  while (bytes != 0 && power < kSuffixes.size() && bytes % 1024 == 0) {
    bytes /= 1024;
    ++power;
  }
  return power == 0 ? fmt::format("{}", bytes) : fmt::format("{}{}", bytes, kSuffixes[power - 1]);
}

std::string readable_bytes(size_t bytes) {
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes) / 1024;
  size_t power = 0;
  while (value >= 1024 && power + 1 < kSuffixes.size()) {
    value /= 1024;
    ++power;
  }
  return fmt::format("{:.4g} {}iB", value, kSuffixes[power]);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) break;
    text.remove_prefix(at + 1);
    if (text.empty()) parts.emplace_back();
  }
  return parts;
}

}  // namespace shardcomm
