// shardcomm ps: this machine's communicators, and where each of their ranks is.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "tools/command.h"
#include "tools/flight_text.h"

namespace shardcomm::tools {
namespace {

std::string operation_text(const FlightPlace& place) {
  return place.current ? fmt::format("op {} {}", place.current->epoch, place.current->call()) : "";
}

// The sends and receives that have not ended, the longest first.
void print_messages(const FlightRecord& record) {
  constexpr size_t kMostShown = 4;
  size_t open = 0;
  for (const FlightMessage& message : record.messages) {
    if (message.finished_ns != 0 || open++ >= kMostShown) continue;
    fmt::print("  rank {} {} {} for {}\n", record.rank, message.started_ns == 0 ? "has queued" : "waits in",
               message.call(), duration_text(record.read_ns - message.enqueued_ns));
  }
  if (open > kMostShown) fmt::print("  rank {} and {} more sends and receives\n", record.rank, open - kMostShown);
}

void print_group(const FlightGroup& group) {
  fmt::print("{}\n", title_of(group));
  const std::vector<FlightPlace> places = group.places();
  size_t program_width = 7, operation_width = 9;
  for (size_t i = 0; i < places.size(); ++i) {
    program_width = std::max(program_width, group.records[i].program.size());
    operation_width = std::max(operation_width, operation_text(places[i]).size());
  }
  fmt::print("  {:>4} {:>8}  {:<{}}  {:<8} {:>9}  {:<{}}  {:<11}\n", "rank", "pid", "program", program_width, "state",
             "done", "operation", operation_width, "for");
  for (size_t i = 0; i < places.size(); ++i) {
    const FlightRecord& record = group.records[i];
    const FlightPlace& place = places[i];
    const std::string done = place.finished_epoch == 0 ? "-" : fmt::format("op {}", place.finished_epoch);
    std::string remarks = place.late ? "late" : "";
    if (const std::string state = process_state_text(record.process_state); !state.empty())
      remarks += (remarks.empty() ? "" : ", ") + state;
    const std::string line = fmt::format("  {:>4} {:>8}  {:<{}}  {:<8} {:>9}  {:<{}}  {:<11} {}", record.rank,
                                         record.pid, record.program, program_width, name(place.state), done,
                                         operation_text(place), operation_width, duration_text(place.for_ns), remarks);
    fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
  }
  for (const FlightRecord& record : group.records) print_messages(record);
  print_troubles(group);
  fmt::print("\n");
}

// What `dump --json` says, without the operations that are over.
std::string to_json(const FlightScan& scan, const std::vector<FlightGroup>& groups) {
  auto all = nlohmann::ordered_json::parse(flight_to_json(groups));
  for (auto& group : all["communicators"]) {
    for (auto& record : group["records"]) {
      record.erase("operations");
      record.erase("messages");
    }
  }
  all["denied_count"] = scan.denied_count;
  all["problems"] = scan.problems;
  return all.dump(2);
}

void print_text(const FlightScan& scan, const std::vector<FlightGroup>& groups) {
  for (const FlightGroup& group : groups) print_group(group);
  if (groups.empty()) fmt::print("no communicators of shardcomm on this machine\n");
  for (const std::string& problem : scan.problems) fmt::print("left out: {}\n", problem);
  if (scan.denied_count != 0) {
    fmt::print("{} process{} could not be looked into: of other users, or protected\n", scan.denied_count,
               scan.denied_count == 1 ? "" : "es");
  }
}

}  // namespace

Subcommand add_ps(CLI::App& app) {
  Flags flags = add_subcommand(app, "ps", "List this machine's communicators, and where each of their ranks is.");
  auto json = std::make_shared<bool>(false);
  flags.toggle("--json", *json, "As one JSON object");
  flags.footer(
      "Reads the flight recorders of running processes, which need not answer: they may be stopped or hang. States: "
      "idle, queued (enqueued, not begun), waiting (in an operation that some rank has not begun), running (that all "
      "have begun), failed, ended. A rank is late when others have been ahead of it for more than 0.1 s.");
  return {flags.app(), [json](const Invocation&) -> Result<int> {
            SHARDCOMM_TRY_ASSIGN(FlightScan scan, scan_flight_records());
            const std::vector<FlightGroup> groups = group_flight_records(std::move(scan.records));
            if (*json) {
              fmt::print("{}\n", to_json(scan, groups));
            } else {
              print_text(scan, groups);
            }
            return 0;
          }};
}

}  // namespace shardcomm::tools
