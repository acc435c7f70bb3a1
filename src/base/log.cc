// The one user of spdlog.
#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>

namespace shardcomm {
namespace {

constexpr std::array<std::string_view, 6> kLevelNames = {"off", "error", "warn", "info", "debug", "trace"};

std::atomic<Level> current_level{Level::kWarn};

// Lives until the process ends, so that destructors of other statics may still log.
spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    auto* made = new spdlog::logger("shardcomm", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%d %H:%M:%S.%e shardcomm %P %l %v");
    made->set_level(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum native(Level level) {
  switch (level) {
    case Level::kOff: return spdlog::level::off;
    case Level::kError: return spdlog::level::err;
    case Level::kWarn: return spdlog::level::warn;
    case Level::kInfo: return spdlog::level::info;
    case Level::kDebug: return spdlog::level::debug;
    case Level::kTrace: return spdlog::level::trace;
  }
  return spdlog::level::off;
}

}  // namespace

void set_log_level(std::string_view level) {
  const auto* found = std::find(kLevelNames.begin(), kLevelNames.end(), level);
  if (found != kLevelNames.end()) current_level = static_cast<Level>(found - kLevelNames.begin());
}

bool log_enabled(Level level) noexcept {
  return level != Level::kOff && level <= current_level.load(std::memory_order_relaxed);
}

void log(Level level, std::string_view message) {
  if (!log_enabled(level)) return;
  std::string line(message);
  std::replace(line.begin(), line.end(), '\n', ' ');
  logger().log(native(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace shardcomm
