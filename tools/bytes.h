// Numbers of bytes as people write them.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace shardcomm::tools {

// A number of bytes with K, M, G or T (powers of 1024), upper or lower case: "256M", "1.5G". Nothing for anything else.
std::optional<size_t> parse_bytes(std::string_view text);
// "256M" where it is a whole number of them, "1000" otherwise.
std::string bytes_text(size_t bytes);

}  // namespace shardcomm::tools
