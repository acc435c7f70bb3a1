#include "tools/bytes.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>

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

}  // namespace shardcomm::tools
