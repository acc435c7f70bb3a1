// shardcomm dump: the last operations of processes or of dumped files, the ranks side by side.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "tools/command.h"
#include "tools/flight_text.h"

namespace shardcomm::tools {
namespace {

struct Request {
  std::vector<std::string> sources;
  std::string output;
  uint64_t last = 32;
  bool json = false;
};

// A number is a process; everything else a file, also "./123".
Result<std::vector<FlightRecord>> read_source(const std::string& source) {
  int32_t pid = 0;
  const auto [end, error] = std::from_chars(source.data(), source.data() + source.size(), pid);
  const bool is_number = end == source.data() + source.size() && error == std::errc();
  return is_number && pid > 0 ? read_flight_records(pid) : read_flight_file(source);
}

const FlightOperation* find(const FlightRecord& record, uint64_t epoch) {
  const auto place = std::lower_bound(record.operations.begin(), record.operations.end(), epoch,
                                      [](const FlightOperation& op, uint64_t e) { return op.epoch < e; });
  return place != record.operations.end() && place->epoch == epoch ? &*place : nullptr;
}

// "12:00:01.123456  +1.2 us  +30 us  ok"
std::string times_of(const FlightRecord& record, const FlightOperation& op) {
  const auto after = [](int64_t before, int64_t ns) {
    return ns == 0 ? std::string("-") : "+" + duration_text(std::max<int64_t>(0, ns - before));
  };
  return fmt::format("{:<15}  {:>10}  {:>10}  {}", wall_text(op.enqueued_ns + record.wall_offset_ns),
                     after(op.enqueued_ns, op.started_ns), after(op.started_ns, op.finished_ns),
                     op.finished_ns == 0 ? (op.started_ns == 0 ? "enqueued" : "running") : code_name(op.outcome));
}

std::string operations_text(const FlightGroup& group, uint64_t last) {
  std::map<uint64_t, size_t> epochs;  // and the longest name
  for (const FlightRecord& record : group.records) {
    for (const FlightOperation& op : record.operations) epochs[op.epoch] = std::max(epochs[op.epoch], op.call().size());
  }
  if (epochs.empty()) return "  no operations yet\n";
  while (last != 0 && epochs.size() > last) epochs.erase(epochs.begin());
  size_t width = 9;
  for (const auto& [epoch, bytes] : epochs) width = std::max(width, bytes);
  std::string text = fmt::format("  {:>7}  {:<{}}  {:>4}  {:<15}  {:>10}  {:>10}  {}\n", "op", "operation", width,
                                 "rank", "enqueued", "started", "finished", "outcome");
  for (const auto& [epoch, unused] : epochs) {
    std::string shown;  // the operation is named again only where a rank calls another
    bool is_first = true;
    for (const FlightRecord& record : group.records) {
      const FlightOperation* op = find(record, epoch);
      const std::string call = op == nullptr ? "" : op->call();
      const bool repeats = !is_first && (op == nullptr || call == shown);
      fmt::format_to(std::back_inserter(text), "  {:>7}  {:<{}}  {:>4}  {}\n", is_first ? fmt::to_string(epoch) : "",
                     repeats ? "" : call, width, record.rank, op == nullptr ? "not called" : times_of(record, *op));
      if (op != nullptr) shown = call;
      is_first = false;
    }
  }
  return text;
}

void print_group(const FlightGroup& group, uint64_t last) {
  fmt::print("{}\n", title_of(group));
  for (const FlightRecord& record : group.records) {
    const std::string state = process_state_text(record.process_state);
    fmt::print("  rank {} is pid {} {}, read {} ({}){}\n", record.rank, record.pid, record.program,
               wall_text(record.read_ns + record.wall_offset_ns), record.reason, state.empty() ? "" : ", " + state);
  }
  print_troubles(group);
  fmt::print("{}\n", operations_text(group, last));
}

// The file is there with all of it, or not at all.
Status write_file(const std::string& path, const std::string& text) {
  const std::string unfinished = path + ".tmp";
  const auto failed = [&](const char* doing) {
    const Status status = Status::native(Origin::kErrno, errno, fmt::format("{} {}", doing, path));
    std::remove(unfinished.c_str());
    return status;
  };
  std::FILE* file = std::fopen(unfinished.c_str(), "we");
  if (file == nullptr) return failed("opening");
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) return failed("writing");
  return std::rename(unfinished.c_str(), path.c_str()) == 0 ? Status() : failed("renaming to");
}

Result<int> act(const Request& request) {
  std::vector<FlightRecord> records;
  for (const std::string& source : request.sources) {
    SHARDCOMM_TRY_ASSIGN(auto found, read_source(source));
    std::move(found.begin(), found.end(), std::back_inserter(records));
  }
  const std::vector<FlightGroup> groups = group_flight_records(std::move(records));
  if (!request.output.empty()) {
    SHARDCOMM_TRY(write_file(request.output, flight_to_json(groups) + "\n"));
    return 0;
  }
  if (request.json) {
    fmt::print("{}\n", flight_to_json(groups));
    return 0;
  }
  for (const FlightGroup& group : groups) print_group(group, request.last);
  return 0;
}

}  // namespace

Subcommand add_dump(CLI::App& app) {
  Flags flags =
      add_subcommand(app, "dump", "Show the last operations of processes or dumped files, ranks side by side.");
  auto request = std::make_shared<Request>();
  flags.texts("source", request->sources, "Processes, by pid, and files that SHARDCOMM_DUMP_DIR or -o made", "PID|FILE")
      .required();
  flags.toggle("--json", request->json, "As one JSON object, with all operations");
  flags.text("-o,--output", request->output, "Write the JSON to this file", "FILE").without_default();
  flags.count("--last", request->last, "Operations to show; 0 for all that are recorded", 0, 1'000'000);
  flags.footer(
      "Needs nothing of the processes: they may be stopped or hang. `started` is the time since enqueued, `finished` "
      "the time since started. Files of several ranks are merged by communicator.");
  return {flags.app(), [request](const Invocation&) { return act(*request); }};
}

}  // namespace shardcomm::tools
