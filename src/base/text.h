// Numbers and sizes to and from the text that people write. Pure functions, any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardcomm {

// Decimal digits only, no sign and no blanks; nothing where it would overflow.
std::optional<uint64_t> parse_count(std::string_view text) noexcept;

// A count with an optional K, M, G or T (or k, KB, KiB, …), all powers of 1024: "256M".
std::optional<size_t> parse_size(std::string_view text) noexcept;

// The way back, exact: the largest suffix that leaves an integer. "256M", "1000".
std::string size_text(size_t bytes);

// For messages, rounded: "22.4 GiB", "17 bytes".
std::string readable_bytes(size_t bytes);

// Parts between separators; an empty text has no parts, and empty parts are kept.
std::vector<std::string_view> split(std::string_view text, char separator);

}  // namespace shardcomm
