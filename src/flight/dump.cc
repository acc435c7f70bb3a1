#include "flight/dump.h"

#include "flight/ticks.h"
#include "shardcomm/status.h"

namespace shardcomm {
namespace {

void write_time(JsonWriter& out, std::string_view name, int64_t ns) noexcept {
  out.raw(name);
  ns == 0 ? out.raw("null") : out.number(ns);
}

void write_entry(JsonWriter& out, const FlightEntry& entry, const TickScale& scale) noexcept {
  const Call& call = entry.call;
  const CallFields has = fields_of(call);
  out.raw("{\"epoch\":").number(static_cast<int64_t>(entry.epoch)).raw(",\"operation\":");
  out.text(call.kind == CallKind::kAgreement ? "agreement" : name(call.collective));
  if (has.dtype) out.raw(",\"dtype\":").text(name(call.dtype));
  if (has.op) out.raw(",\"op\":").text(name(call.op));
  if (has.count) out.raw(",\"count\":").number(static_cast<int64_t>(call.count));
  if (has.root) out.raw(",\"root\":").number(root_of(call));
  if (has.items) out.raw(",\"items\":").number(call.root_or_items);
  out.raw(",\"label\":").text(fixed_text(entry.label, sizeof entry.label));
  write_time(out, ",\"enqueued_ns\":", scale.steady_ns(entry.enqueued));
  write_time(out, ",\"started_ns\":", scale.steady_ns(entry.started));
  write_time(out, ",\"finished_ns\":", scale.steady_ns(entry.finished));
  out.raw(",\"outcome\":");
  entry.finished == 0 ? out.raw("null") : out.text(code_name(static_cast<Code>(entry.outcome)));
  out.raw("}");
}

void write_message(JsonWriter& out, const FlightMessageEntry& entry, const TickScale& scale) noexcept {
  out.raw("{\"number\":").number(static_cast<int64_t>(entry.number));
  out.raw(",\"operation\":").text(entry.call.is_send ? "send" : "recv");
  out.raw(",\"dtype\":").text(name(entry.call.dtype));
  out.raw(",\"count\":").number(static_cast<int64_t>(entry.call.count));
  out.raw(",\"peer\":").number(entry.call.peer).raw(",\"tag\":").number(entry.call.tag);
  out.raw(",\"label\":").text(fixed_text(entry.label, sizeof entry.label));
  write_time(out, ",\"enqueued_ns\":", scale.steady_ns(entry.enqueued));
  write_time(out, ",\"started_ns\":", scale.steady_ns(entry.started));
  write_time(out, ",\"finished_ns\":", scale.steady_ns(entry.finished));
  out.raw(",\"outcome\":");
  entry.finished == 0 ? out.raw("null") : out.text(code_name(static_cast<Code>(entry.outcome)));
  out.raw("}");
}

}  // namespace

void write_segment(JsonWriter& out, const FlightSegment& segment, std::string_view reason) noexcept {
  const FlightHeader& header = segment.header;
  const TickMoment now = TickMoment::now(header.counter_ticks != 0);
  const TickScale scale({header.created_ticks, header.created_steady_ns}, now);
  out.raw("{\"format\":\"shardcomm-flight\",\"format_version\":").number(kFlightFormatVersion);
  out.raw(",\"version\":").text(fixed_text(header.version, sizeof header.version));
  out.raw(",\"reason\":").text(reason);
  out.raw(",\"job\":").hexadecimal(header.job).raw(",\"communicator\":").hexadecimal(header.communicator);
  out.raw(",\"rank\":").number(header.rank).raw(",\"size\":").number(header.size);
  out.raw(",\"pid\":").number(header.pid);
  out.raw(",\"host\":").text(fixed_text(header.host, sizeof header.host));
  out.raw(",\"program\":").text(fixed_text(header.program, sizeof header.program));
  out.raw(",\"created_ns\":").number(header.created_steady_ns).raw(",\"read_ns\":").number(now.steady_ns);
  out.raw(",\"wall_offset_ns\":").number(header.wall_offset_ns).raw(",\"failure\":");
  if (header.failure.load(std::memory_order_acquire) == 2) {
    out.raw("{\"code\":").text(code_name(static_cast<Code>(header.failure_code)));
    out.raw(",\"message\":").text(fixed_text(header.failure_text, sizeof header.failure_text)).raw("}");
  } else {
    out.raw("null");
  }
  out.raw(",\"operations\":[");
  const uint64_t newest = newest_epoch(segment);
  std::string_view separator = "\n";
  for (uint64_t epoch = oldest_epoch(newest); epoch <= newest; ++epoch) {
    FlightEntry entry;
    if (!read_entry(segment, epoch, entry)) continue;
    out.raw(separator);
    separator = ",\n";
    write_entry(out, entry, scale);
  }
  out.raw("\n],\"messages\":[");
  const uint64_t newest_number = newest_message(segment);
  separator = "\n";
  for (uint64_t number = oldest_epoch(newest_number); number <= newest_number; ++number) {
    FlightMessageEntry entry;
    if (!read_message(segment, number, entry)) continue;
    out.raw(separator);
    separator = ",\n";
    write_message(out, entry, scale);
  }
  out.raw("\n]}\n");
}

}  // namespace shardcomm
