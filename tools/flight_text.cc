#include "tools/flight_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ctime>
#include <map>
#include <set>

namespace shardcomm::tools {

std::string duration_text(int64_t ns) {
  const auto value = static_cast<double>(ns);
  if (ns < 1'000) return fmt::format("{} ns", ns);
  if (ns < 1'000'000) return fmt::format("{:.3g} us", value / 1e3);
  if (ns < 1'000'000'000) return fmt::format("{:.3g} ms", value / 1e6);
  if (ns < 60'000'000'000) return fmt::format("{:.3g} s", value / 1e9);
  const int64_t seconds = ns / 1'000'000'000;
  if (seconds < 3600) return fmt::format("{} min {} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {} min", seconds / 3600, seconds / 60 % 60);
}

std::string wall_text(int64_t ns) {
  const std::time_t seconds = ns / 1'000'000'000;
  std::tm local{};
  localtime_r(&seconds, &local);
  return fmt::format("{:02}:{:02}:{:02}.{:06}", local.tm_hour, local.tm_min, local.tm_sec, ns % 1'000'000'000 / 1000);
}

std::string title_of(const FlightGroup& group) {
  std::set<std::string> hosts;
  for (const FlightRecord& record : group.records) hosts.insert(record.host);
  std::string title = fmt::format("communicator {:016x}, {} rank{} on {}", group.communicator, group.size,
                                  group.size == 1 ? "" : "s", fmt::join(hosts, ", "));
  if (group.job != group.communicator) title += fmt::format(", split from {:016x}", group.job);
  return title;
}

std::string process_state_text(char state) {
  switch (state) {
    case 'T': return "stopped";
    case 't': return "stopped by a debugger";
    case 'Z':
    case 'X': return "its process has ended";
    case 'D': return "in uninterruptible sleep";
    default: return {};
  }
}

void print_troubles(const FlightGroup& group) {
  if (!group.missing.empty()) {
    fmt::print("  no record of rank{} {}\n", group.missing.size() == 1 ? "" : "s", fmt::join(group.missing, ","));
  }
  std::map<std::string, std::vector<Rank>> failures;
  for (const FlightRecord& record : group.records) {
    if (!record.failure.ok()) failures[record.failure.to_string()].push_back(record.rank);
  }
  for (const auto& [text, ranks] : failures)
    fmt::print("  failed, says rank{} {}: {}\n", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ","), text);
  if (const std::string difference = group.first_difference(); !difference.empty())
    fmt::print("  ranks differ first at {}\n", difference);
}

}  // namespace shardcomm::tools
