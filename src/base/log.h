// One-line messages on stderr: lower case, values set off by spaces, with the rank and epoch they concern.
// An error is logged by the code that handles it, once; code that returns a Status does not log it. Any thread.
#pragma once
#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace shardcomm {

enum class Level { kOff, kError, kWarn, kInfo, kDebug, kTrace };

// The process's level; "warn" until set. Unknown words leave it as it is: options.cc has checked them.
void set_log_level(std::string_view level);
bool log_enabled(Level level) noexcept;

// A line break in the message becomes a blank.
void log(Level level, std::string_view message);

// The arguments are formatted only if the line is written.
template <class Arg, class... Args>
void log(Level level, fmt::format_string<Arg, Args...> format, Arg&& arg, Args&&... args) {
  if (log_enabled(level)) log(level, fmt::format(format, std::forward<Arg>(arg), std::forward<Args>(args)...));
}

}  // namespace shardcomm
