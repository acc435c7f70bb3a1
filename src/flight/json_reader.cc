// Dumped records back from JSON, which may be damaged or of anybody's making.
#include <errno.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "flight/dump.h"
#include "flight/image.h"

namespace shardcomm {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostFileBytes = size_t{256} << 20;
constexpr int kMostDepth = 16;

Status damaged(std::string_view why) {
  return Status(Code::kDataLoss, fmt::format("this is no flight record: {}", why));
}

// Fields of one object; the first that is missing or of another kind is remembered.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  template <class T>
  void integer(const char* name, T& target) {
    const Json* value = find(name);
    if (value == nullptr) return;
    if (!value->is_number_integer()) return miss(name, "a whole number");
    const bool fits = value->is_number_unsigned() ? std::in_range<T>(value->get<uint64_t>())
                                                  : std::in_range<T>(value->get<int64_t>());
    if (!fits) return miss(name, "a number of that size");
    target = value->get<T>();
  }
  void time(const char* name, int64_t& target) {
    constexpr int64_t kMost = 4'000'000'000'000'000'000;  // the year 2096 on the wall clock; two of them can be added
    const Json* value = find(name);
    if (value == nullptr || value->is_null()) return;
    integer(name, target);
    if (target < -kMost || target > kMost) miss(name, "a time");
  }
  void text(const char* name, std::string& target) {
    const Json* value = find(name);
    if (value == nullptr) return;
    if (!value->is_string()) return miss(name, "a text");
    target = value->get<std::string>();
  }
  void hexadecimal(const char* name, uint64_t& target) {
    std::string digits;
    text(name, digits);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), target, 16);
    if (error != std::errc() || end != digits.data() + digits.size()) miss(name, "a hexadecimal number");
  }
  template <class Parse, class T>
  void word(const char* name, Parse parse, T& target) {
    std::string word;
    text(name, word);
    const auto value = parse(word);
    if (!value) return miss(name, "a known word");
    target = *value;
  }
  bool has(const char* name) const { return object_.contains(name); }
  void miss(const char* name, const char* wanted) {
    if (problem_.empty()) problem_ = fmt::format("'{}' is not {}", name, wanted);
  }
  Status status() const { return problem_.empty() ? Status() : damaged(problem_); }

 private:
  const Json* find(const char* name) {
    const auto value = object_.find(name);
    if (value == object_.end()) {
      if (problem_.empty()) problem_ = fmt::format("'{}' is missing", name);
      return nullptr;
    }
    return &*value;
  }
  const Json& object_;
  std::string problem_;
};

std::optional<Code> parse_code(std::string_view text) {
  for (int32_t value = 0; value <= static_cast<int32_t>(Code::kDataLoss); ++value) {
    if (code_name(static_cast<Code>(value)) == text) return static_cast<Code>(value);
  }
  return std::nullopt;
}

Result<FlightOperation> operation_of(const Json& json) {
  if (!json.is_object()) return damaged("an operation is not an object");
  FlightOperation operation;
  Fields fields(json);
  fields.integer("epoch", operation.epoch);
  std::string called;
  fields.text("operation", called);
  if (called != "agreement") fields.word("operation", parse_collective, operation.collective);
  const CallFields has = fields_of(call_of(operation));
  if (has.dtype) fields.word("dtype", parse_dtype, operation.dtype);
  if (has.op) fields.word("op", parse_reduce_op, operation.op);
  if (has.count) fields.integer("count", operation.count);
  if (has.root) fields.integer("root", operation.root);
  if (has.items) fields.integer("items", operation.items);
  fields.text("label", operation.label);
  fields.time("enqueued_ns", operation.enqueued_ns);
  fields.time("started_ns", operation.started_ns);
  fields.time("finished_ns", operation.finished_ns);
  if (operation.finished_ns != 0) fields.word("outcome", parse_code, operation.outcome);
  SHARDCOMM_TRY(fields.status());
  return operation;
}

Result<FlightMessage> message_of(const Json& json) {
  if (!json.is_object()) return damaged("a message is not an object");
  FlightMessage message;
  Fields fields(json);
  fields.integer("number", message.number);
  const auto parse_side = [](std::string_view text) -> std::optional<bool> {
    return text == "send" || text == "recv" ? std::optional(text == "send") : std::nullopt;
  };
  fields.word("operation", parse_side, message.is_send);
  fields.word("dtype", parse_dtype, message.dtype);
  fields.integer("count", message.count);
  fields.integer("peer", message.peer);
  fields.integer("tag", message.tag);
  fields.text("label", message.label);
  fields.time("enqueued_ns", message.enqueued_ns);
  fields.time("started_ns", message.started_ns);
  fields.time("finished_ns", message.finished_ns);
  if (message.finished_ns != 0) fields.word("outcome", parse_code, message.outcome);
  SHARDCOMM_TRY(fields.status());
  return message;
}

// Records of earlier versions have none.
Status read_messages(const Json& json, std::vector<FlightMessage>& messages) {
  if (!json.contains("messages")) return {};
  if (!json["messages"].is_array()) return damaged("'messages' is not a list");
  for (const Json& element : json["messages"]) {
    SHARDCOMM_TRY_ASSIGN(FlightMessage message, message_of(element));
    messages.push_back(std::move(message));
  }
  return {};
}

Status read_failure(const Json& json, Status& failure) {
  if (json.is_null()) return {};
  if (!json.is_object()) return damaged("'failure' is not an object");
  Fields fields(json);
  Code code{};
  std::string message;
  fields.word("code", parse_code, code);
  fields.text("message", message);
  SHARDCOMM_TRY(fields.status());
  failure = Status(code, std::move(message));
  return {};
}

Status read_operations(const Json& json, std::vector<FlightOperation>& operations) {
  if (!json.is_array()) return damaged("'operations' is not a list");
  for (const Json& element : json) {
    SHARDCOMM_TRY_ASSIGN(FlightOperation operation, operation_of(element));
    if (!operations.empty() && operations.back().epoch >= operation.epoch)
      return damaged(fmt::format("op {} comes after op {}", operation.epoch, operations.back().epoch));
    operations.push_back(std::move(operation));
  }
  return {};
}

Result<FlightRecord> record_of(const Json& json) {
  Fields fields(json);
  std::string format;
  int format_version = 0;
  fields.text("format", format);
  fields.integer("format_version", format_version);
  SHARDCOMM_TRY(fields.status());
  if (format != "shardcomm-flight") return damaged("'format' is not shardcomm-flight");
  if (format_version != kFlightFormatVersion) {
    return Status(Code::kUnsupported, fmt::format("flight record of format version {}; this shardcomm reads {}",
                                                  format_version, kFlightFormatVersion));
  }
  FlightRecord record;
  fields.hexadecimal("job", record.job);
  fields.hexadecimal("communicator", record.communicator);
  fields.integer("rank", record.rank);
  fields.integer("size", record.size);
  fields.integer("pid", record.pid);
  fields.text("host", record.host);
  fields.text("program", record.program);
  fields.text("version", record.version);
  fields.text("reason", record.reason);
  std::string state = "?";
  if (fields.has("process_state")) fields.text("process_state", state);
  record.process_state = state.empty() ? '?' : state.front();
  fields.time("created_ns", record.created_ns);
  fields.time("read_ns", record.read_ns);
  fields.time("wall_offset_ns", record.wall_offset_ns);
  if (record.size < 1 || record.rank < 0 || record.rank >= record.size) fields.miss("rank", "a rank below 'size'");
  if (!fields.has("failure")) fields.miss("failure", "there");
  if (!fields.has("operations")) fields.miss("operations", "there");
  SHARDCOMM_TRY(fields.status());
  SHARDCOMM_TRY(read_failure(json["failure"], record.failure));
  SHARDCOMM_TRY(read_operations(json["operations"], record.operations));
  SHARDCOMM_TRY(read_messages(json, record.messages));
  return record;
}

// One record, a list of them, or what flight_to_json wrote.
Status collect(const Json& json, std::vector<FlightRecord>& records) {
  if (json.is_array()) {
    for (const Json& element : json) SHARDCOMM_TRY(collect(element, records));
    return {};
  }
  if (!json.is_object()) return damaged("it is neither an object nor a list of them");
  if (const auto groups = json.find("communicators"); groups != json.end()) return collect(*groups, records);
  if (const auto ranks = json.find("records"); ranks != json.end()) return collect(*ranks, records);
  SHARDCOMM_TRY_ASSIGN(FlightRecord record, record_of(json));
  records.push_back(std::move(record));
  return {};
}

Result<Json> parse(std::string_view text) {
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMostDepth;
    return depth <= kMostDepth;
  };
  try {
    Json json = Json::parse(text, watch);
    if (too_deep) return damaged("it is nested too deep");
    return json;
  } catch (const Json::parse_error& error) {
    return damaged(fmt::format("it is not JSON, or cut off, at byte {}", error.byte));
  } catch (const Json::exception&) {
    return damaged("it has a number beyond all measure");
  }
}

}  // namespace

Result<std::vector<FlightRecord>> parse_flight_json(std::string_view text) {
  SHARDCOMM_TRY_ASSIGN(const Json json, parse(text));
  std::vector<FlightRecord> records;
  SHARDCOMM_TRY(collect(json, records));
  return records;
}

Result<std::vector<FlightRecord>> read_flight_file(const std::string& path) {
  const auto failed = [&](const char* doing) {
    return Status::native(Origin::kErrno, errno, fmt::format("{} {}", doing, path));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
  if (file == nullptr) return failed("opening");
  std::string text;
  char piece[1 << 16];
  while (const size_t bytes = std::fread(piece, 1, sizeof piece, file.get())) {
    text.append(piece, bytes);
    if (text.size() > kMostFileBytes) return damaged(fmt::format("{} is too large", path));
  }
  if (std::ferror(file.get()) != 0) return failed("reading");
  Result<std::vector<FlightRecord>> records = parse_flight_json(text);
  if (!records.ok()) return records.status().context("reading " + path);
  return records;
}

}  // namespace shardcomm
