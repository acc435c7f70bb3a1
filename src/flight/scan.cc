// Finding recorders: the open files of processes, by the name of the memfd.
#include <dirent.h>
#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "flight/image.h"

namespace shardcomm {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

std::string read_whole(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// The state of a process: after its name, which may hold anything, in parentheses.
char state_of(int32_t pid) {
  const std::string stat = read_whole(fmt::format("/proc/{}/stat", pid));
  const size_t end = stat.rfind(')');
  return end != std::string::npos && end + 2 < stat.size() ? stat[end + 2] : 'X';
}

// What the process itself takes for its pid: the last of its pid namespaces.
int32_t own_pid_of(int32_t pid) {
  const std::string status = read_whole(fmt::format("/proc/{}/status", pid));
  const size_t line = status.find("\nNSpid:");
  if (line == std::string::npos) return pid;
  std::istringstream words(status.substr(line + 7, status.find('\n', line + 1) - line - 7));
  int32_t own = pid;
  while (words >> own) {
  }
  return own;
}

// Kernel threads have no command line; nobody misses them.
bool is_program(int32_t pid) { return !read_whole(fmt::format("/proc/{}/cmdline", pid)).empty(); }

bool is_recorder(const std::string& path) {
  const std::string wanted = fmt::format("/memfd:{}", kFlightName);
  char target[64];
  const ssize_t length = readlink(path.c_str(), target, sizeof target);
  if (length < 0) return false;
  const std::string_view found(target, static_cast<size_t>(length));
  return found == wanted || found == wanted + " (deleted)";
}

bool is_gone(const Status& status) {
  return status.native_value() == ENOENT || status.native_value() == ESRCH || status.code() == Code::kUnavailable;
}

constexpr char kNotTheOwner = 0;  // a process state, until all are known

// What one process has open. The record's process is the one that made it; a forked child may hold it too.
struct Found {
  std::map<uint64_t, FlightRecord> records;  // by inode
  std::vector<Status> problems;
};

Status look_into(int32_t pid, Found& found) {
  const std::string directory = fmt::format("/proc/{}/fd", pid);
  const Directory files(opendir(directory.c_str()));
  if (files == nullptr) return Status::native(Origin::kErrno, errno, "opening " + directory);
  std::optional<int32_t> own_pid;
  while (const dirent* entry = readdir(files.get())) {
    const std::string path = fmt::format("{}/{}", directory, entry->d_name);
    if (!is_recorder(path)) continue;
    Result<SegmentFile> file = read_segment_file(path);
    if (!file.ok()) {
      if (!is_gone(file.status())) found.problems.push_back(file.status());
      continue;
    }
    FlightRecord& record = file->record;
    if (!own_pid) own_pid = own_pid_of(pid);
    const bool is_owner = record.pid == *own_pid;
    record.process_state = is_owner ? state_of(pid) : kNotTheOwner;
    if (is_owner) record.pid = pid;
    const auto [place, is_new] = found.records.try_emplace(file->inode, record);
    if (!is_new && is_owner) place->second = record;
  }
  return {};
}

std::vector<FlightRecord> values_of(Found&& found) {
  std::vector<FlightRecord> records;
  for (auto& [inode, record] : found.records) records.push_back(std::move(record));
  return records;
}

}  // namespace

Result<FlightScan> scan_flight_records() {
  const Directory processes(opendir("/proc"));
  if (processes == nullptr) return Status::native(Origin::kErrno, errno, "opening /proc");
  FlightScan scan;
  Found found;
  while (const dirent* entry = readdir(processes.get())) {
    const std::string_view name = entry->d_name;
    int32_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    const Status status = look_into(pid, found);
    const bool denied = status.native_value() == EACCES || status.native_value() == EPERM;
    if (denied && is_program(pid)) ++scan.denied_count;
  }
  for (const Status& problem : found.problems) scan.problems.push_back(problem.to_string());
  scan.records = values_of(std::move(found));
  for (FlightRecord& record : scan.records) {
    if (record.process_state != kNotTheOwner) continue;
    record.process_state = access(fmt::format("/proc/{}", record.pid).c_str(), F_OK) == 0 ? '?' : 'X';
  }
  return scan;
}

Result<std::vector<FlightRecord>> read_flight_records(int32_t pid) {
  Found found;
  if (const Status status = look_into(pid, found); !status.ok()) {
    if (status.native_value() == ENOENT || status.native_value() == ESRCH)
      return Status(Code::kUnavailable, fmt::format("there is no process {}", pid));
    return status.context(fmt::format("looking for communicators of process {}", pid));
  }
  if (found.records.empty() && !found.problems.empty()) return found.problems.front();
  std::erase_if(found.records, [](const auto& entry) { return entry.second.process_state == kNotTheOwner; });
  if (found.records.empty())
    return Status(Code::kUnavailable, fmt::format("process {} has no communicator of shardcomm", pid));
  return values_of(std::move(found));
}

}  // namespace shardcomm
