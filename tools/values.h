// How values on the command line are read: each kind says what it wants when it gets something else.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardcomm::tools {

// A number of bytes with K, M, G or T (powers of 1024), upper or lower case: "256M", "1.5G". Nothing for anything else.
std::optional<size_t> parse_bytes(std::string_view text);
// "256M" where it is a whole number of them, "1000" otherwise.
std::string bytes_text(size_t bytes);

// What a validator wants is said when it does not get it.
CLI::Validator byte_size(size_t least);  // for transform(): the size becomes a plain number
CLI::Validator whole_number(int64_t least, int64_t most);
CLI::Validator one_of(std::vector<std::string> words);

// Options of each kind. What `target` holds is the default, and shown as such.
template <class T>
CLI::Option* add_count(CLI::App& app, const std::string& flags, T& target, const std::string& help, int64_t least,
                       int64_t most) {
  return app.add_option(flags, target, help)->check(whole_number(least, most))->type_name("N")->capture_default_str();
}
inline CLI::Option* add_size(CLI::App& app, const std::string& flags, size_t& target, const std::string& help,
                             size_t least = 0) {
  return app.add_option(flags, target, help)
      ->transform(byte_size(least))
      ->type_name("SIZE")
      ->default_str(bytes_text(target));
}
inline CLI::Option* add_word(CLI::App& app, const std::string& flags, std::string& target, const std::string& help,
                             const std::vector<std::string>& words) {
  CLI::Option* option = app.add_option(flags, target, help)->check(one_of(words))->type_name("");
  return target.empty() ? option : option->capture_default_str();
}

}  // namespace shardcomm::tools
