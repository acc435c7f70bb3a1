// What the tests of the flight recorder share: a directory for dumps, and the records of one communicator.
#pragma once
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "shardcomm/flight.h"
#include "tests/support/failure.h"

namespace shardcomm::testing {

// Gone with its content at the end.
class DumpDirectory {
 public:
  DumpDirectory() {
    std::string path = std::filesystem::temp_directory_path() / "flight-XXXXXX";
    if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = path;
  }
  DumpDirectory(const DumpDirectory&) = delete;
  DumpDirectory& operator=(const DumpDirectory&) = delete;
  ~DumpDirectory() {
    if (getpid() != owner_) return;
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string option() const { return "dump_dir=" + path_; }
  std::vector<std::string> files() const {
    std::vector<std::string> paths;
    for (const std::string& name : files_in(path_)) paths.push_back(path_ + "/" + name);
    return paths;
  }
  // The records of all files, by communicator; a damaged file fails the test.
  std::vector<FlightGroup> groups() const {
    std::vector<FlightRecord> records;
    for (const std::string& path : files()) {
      auto found = read_flight_file(path);
      EXPECT_TRUE(found.ok()) << found.status().to_string();
      if (found.ok()) records.insert(records.end(), found->begin(), found->end());
    }
    return group_flight_records(std::move(records));
  }
  // Until there are so many whole files.
  bool await(size_t count) const {
    for (int i = 0; i < 1000; ++i) {
      const auto names = files_in(path_);
      const auto whole = std::count_if(names.begin(), names.end(), [](const auto& n) { return n.ends_with(".json"); });
      if (static_cast<size_t>(whole) >= count) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }

 private:
  std::string path_;
  pid_t owner_ = getpid();
};

// The communicator that this process is `rank` of, as this machine's processes show it; the test fails without one.
inline FlightGroup live_group() {
  auto scan = scan_flight_records();
  EXPECT_TRUE(scan.ok()) << scan.status().to_string();
  if (!scan.ok()) return {};
  for (FlightGroup& group : group_flight_records(std::move(scan->records))) {
    for (const FlightRecord& record : group.records) {
      if (record.pid == getpid()) return std::move(group);
    }
  }
  ADD_FAILURE() << "no communicator of process " << getpid() << " is to be seen";
  return {};
}

inline std::string read_text_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace shardcomm::testing
