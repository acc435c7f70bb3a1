#include "tools/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <memory>

#include "shardcomm/options.h"
#include "tools/bytes.h"

namespace shardcomm::tools {
namespace {

using Check = std::function<std::string(std::string&)>;

// Reads the whole text as one number.
template <class T>
bool read(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

template <class T>
Check number_within(T least, T most, const char* kind) {
  return [=](std::string& text) -> std::string {
    T value{};
    if (read(text, value) && value >= least && value <= most) return {};
    return fmt::format("must be a {} from {} to {}, not '{}'", kind, least, most, text);
  };
}

Check byte_size(uint64_t least) {
  return [least](std::string& text) -> std::string {
    const auto bytes = parse_bytes(text);
    if (!bytes || *bytes < least)
      return fmt::format("must be a size of at least {} bytes like 1000, 64K, 256M or 1G, not '{}'", least, text);
    text = std::to_string(*bytes);
    return {};
  };
}

Check one_of(std::vector<std::string> words) {
  return [words = std::move(words)](std::string& text) -> std::string {
    if (std::find(words.begin(), words.end(), text) != words.end()) return {};
    return fmt::format("must be one of {}, not '{}'", fmt::join(words, ", "), text);
  };
}

std::string check_transports(const std::string& text) {
  const Result<Options> parsed = Options::parse("transports=" + text);
  return parsed.ok() ? std::string() : std::string(parsed.status().message());
}

class FixedUsage : public CLI::Formatter {
 public:
  explicit FixedUsage(std::string line) : line_(std::move(line)) {}
  std::string make_usage(const CLI::App*, std::string) const override { return line_ + "\n"; }

 private:
  std::string line_;
};

// The check may rewrite the text before it becomes the value.
template <class T>
CLI::Option* add(CLI::App& app, const std::string& group, const std::string& names, T& target,
                 const std::string& help) {
  return app.add_option(names, target, help)->group(group)->capture_default_str();
}

}  // namespace

Flag& Flag::required() {
  option_->required()->default_str("");
  return *this;
}

Flag& Flag::without_default() {
  option_->default_str("");
  return *this;
}

bool Flag::given() const { return option_->count() > 0; }

Flags& Flags::group(const std::string& heading) {
  group_ = heading;
  return *this;
}

Flags& Flags::usage(const std::string& line) {
  app_->formatter(std::make_shared<FixedUsage>(line));
  return *this;
}

Flags& Flags::footer(const std::string& text) {
  app_->footer(text);
  return *this;
}

Flag Flags::count(const std::string& names, int& target, const std::string& help, int64_t least, int64_t most) {
  return Flag(add(*app_, group_, names, target, help)
                  ->type_name("N")
                  ->transform(CLI::Validator(number_within<int64_t>(least, most, "whole number"), "")));
}

Flag Flags::count(const std::string& names, uint64_t& target, const std::string& help, uint64_t least, uint64_t most) {
  return Flag(add(*app_, group_, names, target, help)
                  ->type_name("N")
                  ->transform(CLI::Validator(number_within<uint64_t>(least, most, "whole number"), "")));
}

Flag Flags::size(const std::string& names, uint64_t& target, const std::string& help, uint64_t least) {
  return Flag(add(*app_, group_, names, target, help)
                  ->type_name("SIZE")
                  ->default_str(bytes_text(target))
                  ->transform(CLI::Validator(byte_size(least), "")));
}

Flag Flags::real(const std::string& names, float& target, const std::string& help, double least, double most) {
  return Flag(add(*app_, group_, names, target, help)
                  ->type_name("X")
                  ->transform(CLI::Validator(number_within<double>(least, most, "number"), "")));
}

Flag Flags::real(const std::string& names, double& target, const std::string& help, double least, double most) {
  return Flag(add(*app_, group_, names, target, help)
                  ->type_name("X")
                  ->transform(CLI::Validator(number_within<double>(least, most, "number"), "")));
}

Flag Flags::word(const std::string& names, std::string& target, const std::string& help,
                 const std::vector<std::string>& words) {
  return Flag(add(*app_, group_, names, target, help)
                  ->type_name(fmt::format("{{{}}}", fmt::join(words, ",")))
                  ->transform(CLI::Validator(one_of(words), "")));
}

Flag Flags::text(const std::string& names, std::string& target, const std::string& help, const std::string& type) {
  return Flag(add(*app_, group_, names, target, help)->type_name(type));
}

Flag Flags::texts(const std::string& names, std::vector<std::string>& target, const std::string& help,
                  const std::string& type) {
  return Flag(app_->add_option(names, target, help)->group(group_)->type_name(type));
}

Flag Flags::transports(std::string& target) {
  return Flag(
      add(*app_, group_, "--transports", target, "Transports to try, in order (default: as the environment says)")
          ->type_name("LIST")
          ->check(CLI::Validator(check_transports, "")));
}

Flag Flags::toggle(const std::string& names, bool& target, const std::string& help) {
  return Flag(app_->add_flag(names, target, help)->group(group_));
}

Flags add_subcommand(CLI::App& parent, const std::string& name, const std::string& description) {
  return Flags(parent.add_subcommand(name, description));
}

}  // namespace shardcomm::tools
