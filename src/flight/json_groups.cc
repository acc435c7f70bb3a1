// Groups as one JSON object: records as dumps have them, and where each rank is.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "flight/dump.h"
#include "flight/image.h"

namespace shardcomm {
namespace {

using Json = nlohmann::ordered_json;

Json time_or_null(int64_t ns) { return ns == 0 ? Json() : Json(ns); }

Json operation_json(const FlightOperation& operation) {
  const CallFields has = fields_of(call_of(operation));
  Json json = {{"epoch", operation.epoch},
               {"operation", operation.collective ? name(*operation.collective) : "agreement"}};
  if (has.dtype) json["dtype"] = name(operation.dtype);
  if (has.op) json["op"] = name(operation.op);
  if (has.count) json["count"] = operation.count;
  if (has.root) json["root"] = operation.root;
  if (has.items) json["items"] = operation.items;
  json["label"] = operation.label;
  json["enqueued_ns"] = time_or_null(operation.enqueued_ns);
  json["started_ns"] = time_or_null(operation.started_ns);
  json["finished_ns"] = time_or_null(operation.finished_ns);
  json["outcome"] = operation.finished_ns == 0 ? Json() : Json(code_name(operation.outcome));
  return json;
}

Json message_json(const FlightMessage& message) {
  return {{"number", message.number},
          {"operation", message.is_send ? "send" : "recv"},
          {"dtype", name(message.dtype)},
          {"count", message.count},
          {"peer", message.peer},
          {"tag", message.tag},
          {"label", message.label},
          {"enqueued_ns", time_or_null(message.enqueued_ns)},
          {"started_ns", time_or_null(message.started_ns)},
          {"finished_ns", time_or_null(message.finished_ns)},
          {"outcome", message.finished_ns == 0 ? Json() : Json(code_name(message.outcome))}};
}

Json place_json(const FlightPlace& place) {
  return {{"state", name(place.state)},
          {"for_ns", place.for_ns},
          {"late", place.late},
          {"finished_epoch", place.finished_epoch},
          {"current", place.current ? operation_json(*place.current) : Json()}};
}

Json record_json(const FlightRecord& record, const FlightPlace& place) {
  Json failure;
  if (!record.failure.ok())
    failure = {{"code", code_name(record.failure.code())}, {"message", record.failure.message()}};
  Json operations = Json::array();
  for (const FlightOperation& operation : record.operations) operations.push_back(operation_json(operation));
  Json messages = Json::array();
  for (const FlightMessage& message : record.messages) messages.push_back(message_json(message));
  return {{"format", "shardcomm-flight"},
          {"format_version", kFlightFormatVersion},
          {"version", record.version},
          {"reason", record.reason},
          {"job", fmt::format("{:016x}", record.job)},
          {"communicator", fmt::format("{:016x}", record.communicator)},
          {"rank", record.rank},
          {"size", record.size},
          {"pid", record.pid},
          {"host", record.host},
          {"program", record.program},
          {"process_state", std::string(1, record.process_state)},
          {"created_ns", record.created_ns},
          {"read_ns", record.read_ns},
          {"wall_offset_ns", record.wall_offset_ns},
          {"place", place_json(place)},
          {"failure", failure},
          {"operations", std::move(operations)},
          {"messages", std::move(messages)}};
}

}  // namespace

std::string flight_to_json(const std::vector<FlightGroup>& groups) {
  Json list = Json::array();
  for (const FlightGroup& group : groups) {
    const std::vector<FlightPlace> places = group.places();
    Json records = Json::array();
    for (size_t i = 0; i < group.records.size(); ++i) records.push_back(record_json(group.records[i], places[i]));
    list.push_back({{"communicator", fmt::format("{:016x}", group.communicator)},
                    {"job", fmt::format("{:016x}", group.job)},
                    {"size", group.size},
                    {"missing", group.missing},
                    {"first_difference", group.first_difference()},
                    {"records", std::move(records)}});
  }
  const Json all = {{"communicators", std::move(list)}};
  return all.dump(1, ' ', false, Json::error_handler_t::replace);  // labels may be cut inside a UTF-8 character
}

}  // namespace shardcomm
