// How much memory may be taken: the machine's, the control groups' and the process's own limit.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "base/text.h"
#include "memory/memory.h"

namespace shardcomm {
namespace {

constexpr size_t kUnknown = std::numeric_limits<size_t>::max();

std::optional<size_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  if (!(file >> text)) return std::nullopt;
  return parse_count(text);  // "max" is none
}

// The number behind a word of a file of "word number" lines.
std::optional<size_t> read_field(const std::string& path, std::string_view field) {
  std::ifstream file(path);
  std::string word;
  std::string rest;
  while (file >> word) {
    size_t number = 0;
    if (word == field && file >> number) return number;
    file.clear();
    std::getline(file, rest);
  }
  return std::nullopt;
}

size_t machine_available(const std::string& root) {
  const auto kib = read_field(root + "/proc/meminfo", "MemAvailable:");
  return kib ? *kib * 1024 : kUnknown;
}

// The files of one version of control groups. "reclaimable" is page cache that counts as used but would be given up.
struct GroupFiles {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* reclaimable;
};
constexpr GroupFiles kVersion1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

size_t group_available(const std::string& directory, const GroupFiles& files) {
  const auto limit = read_number(fmt::format("{}/{}", directory, files.limit));
  const auto usage = read_number(fmt::format("{}/{}", directory, files.usage));
  if (!limit || !usage) return kUnknown;
  const size_t cache = read_field(directory + "/memory.stat", files.reclaimable).value_or(0);
  const size_t used = *usage - std::min(cache, *usage);
  return *limit - std::min(used, *limit);
}

// A limit of any group from ours up to the root of the mount holds. In a container the path is often the host's and
// leads nowhere; the root of the mount is then our group.
size_t groups_available(const std::string& root, std::string path, const GroupFiles& files) {
  size_t least = kUnknown;
  for (;;) {
    if (path == "/") path.clear();
    least = std::min(least, group_available(root + files.mount + path, files));
    if (path.empty()) return least;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

size_t control_groups_available(const std::string& root) {
  size_t least = kUnknown;
  std::ifstream file(root + "/proc/self/cgroup");  // lines "number:controller,controller:/path"
  std::string line;
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) least = std::min(least, groups_available(root, path, kVersion2));
    for (std::string_view controller : split(controllers, ',')) {
      if (controller == "memory") least = std::min(least, groups_available(root, path, kVersion1));
    }
  }
  return least;
}

size_t address_space_available(const std::string& root) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnknown;
  const size_t pages = read_number(root + "/proc/self/statm").value_or(0);
  const size_t used = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return limit.rlim_cur - std::min<size_t>(used, limit.rlim_cur);
}

}  // namespace

size_t memory_available_bytes(const std::string& root) {
  return std::min({machine_available(root), control_groups_available(root), address_space_available(root)});
}

Status check_memory_for(size_t bytes, std::string_view label) {
  if (bytes == 0) return {};
  const size_t available = memory_available_bytes();
  if (bytes <= available) return {};
  return Status(Code::kOutOfMemory,
                fmt::format("{} needs {}, {} available", label, readable_bytes(bytes), readable_bytes(available)));
}

}  // namespace shardcomm
