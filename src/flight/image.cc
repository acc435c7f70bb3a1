#include "flight/image.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "flight/ticks.h"

namespace shardcomm {
namespace {

FlightOperation operation_of(const FlightEntry& entry, const TickScale& scale) {
  const Call& call = entry.call;
  const CallFields has = fields_of(call);
  FlightOperation operation;
  operation.epoch = entry.epoch;
  if (call.kind != CallKind::kAgreement) operation.collective = call.collective;
  if (has.dtype) operation.dtype = call.dtype;
  if (has.op) operation.op = call.op;
  operation.count = call.count;
  if (has.root) operation.root = root_of(call);
  if (has.items) operation.items = static_cast<uint32_t>(call.root_or_items);
  operation.label = fixed_text(entry.label, sizeof entry.label);
  operation.enqueued_ns = scale.steady_ns(entry.enqueued);
  operation.started_ns = scale.steady_ns(entry.started);
  operation.finished_ns = scale.steady_ns(entry.finished);
  operation.outcome = static_cast<Code>(entry.outcome);
  return operation;
}

FlightMessage message_of(const FlightMessageEntry& entry, const TickScale& scale) {
  FlightMessage message;
  message.number = entry.number;
  message.is_send = entry.call.is_send;
  message.dtype = entry.call.dtype;
  message.count = entry.call.count;
  message.peer = entry.call.peer;
  message.tag = entry.call.tag;
  message.label = fixed_text(entry.label, sizeof entry.label);
  message.enqueued_ns = scale.steady_ns(entry.enqueued);
  message.started_ns = scale.steady_ns(entry.started);
  message.finished_ns = scale.steady_ns(entry.finished);
  message.outcome = static_cast<Code>(entry.outcome);
  return message;
}

Status no_record(const std::string& path, std::string_view why) {
  return Status(Code::kDataLoss, fmt::format("{} is no flight record: {}", path, why));
}

struct Unmap {
  void operator()(const FlightSegment* segment) const noexcept {
    munmap(const_cast<FlightSegment*>(segment), sizeof *segment);
  }
};
using Mapped = std::unique_ptr<const FlightSegment, Unmap>;

// Of the right length, and staying so.
Result<Mapped> map(int fd, const std::string& path, const struct stat& info) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  if (!S_ISREG(info.st_mode)) return no_record(path, "it is not a file in memory");
  if (info.st_size == 0) return Status(Code::kUnavailable, path + " is still being made");
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return no_record(path, "it may change its size");
  if (info.st_size < static_cast<off_t>(sizeof(FlightSegment))) {
    return no_record(path, fmt::format("it has {} bytes, not {}", info.st_size, sizeof(FlightSegment)));
  }
  void* mapped = mmap(nullptr, sizeof(FlightSegment), PROT_READ, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return Status::native(Origin::kErrno, errno, "mapping " + path);
  return Mapped(static_cast<const FlightSegment*>(mapped));
}

Status check(const FlightHeader& header, const std::string& path) {
  const uint64_t magic = header.magic.load(std::memory_order_acquire);
  if (magic == 0) return Status(Code::kUnavailable, path + " is still being made");
  if (magic != kFlightMagic) return no_record(path, "it does not begin like one");
  if (header.layout != kFlightLayout) {
    return Status(Code::kUnsupported, fmt::format("{} has layout {} of another shardcomm; this one reads layout {}",
                                                  path, header.layout, kFlightLayout));
  }
  if (header.capacity != kFlightCapacity || header.size < 1 || header.rank < 0 || header.rank >= header.size)
    return no_record(path, "its header is damaged");
  return {};
}

}  // namespace

Call call_of(const FlightOperation& operation) noexcept {
  if (!operation.collective) return {.kind = CallKind::kAgreement};
  const CollectiveTraits& has = traits(*operation.collective);
  Call call{.collective = *operation.collective,
            .dtype = operation.dtype,
            .op = operation.op,
            .root_or_items = has.is_many ? static_cast<int32_t>(operation.items) : 0,
            .count = operation.count};
  if (has.has_root) set_root(call, operation.root);
  return call;
}

FlightRecord record_of(const FlightSegment& segment) {
  const FlightHeader& header = segment.header;
  FlightRecord record;
  record.job = header.job;
  record.communicator = header.communicator;
  record.rank = header.rank;
  record.size = header.size;
  record.pid = header.pid;
  record.host = fixed_text(header.host, sizeof header.host);
  record.program = fixed_text(header.program, sizeof header.program);
  record.version = fixed_text(header.version, sizeof header.version);
  record.reason = "read";
  record.created_ns = header.created_steady_ns;
  record.wall_offset_ns = header.wall_offset_ns;
  if (header.failure.load(std::memory_order_acquire) == 2) {
    record.failure = Status(static_cast<Code>(header.failure_code),
                            std::string(fixed_text(header.failure_text, sizeof header.failure_text)));
  }
  const TickMoment now = TickMoment::now(header.counter_ticks != 0);
  const TickScale scale({header.created_ticks, header.created_steady_ns}, now);
  record.read_ns = now.steady_ns;
  const uint64_t newest = newest_epoch(segment);
  for (uint64_t epoch = oldest_epoch(newest); epoch <= newest; ++epoch) {
    FlightEntry entry;
    if (read_entry(segment, epoch, entry)) record.operations.push_back(operation_of(entry, scale));
  }
  const uint64_t newest_number = newest_message(segment);
  for (uint64_t number = oldest_epoch(newest_number); number <= newest_number; ++number) {
    FlightMessageEntry entry;
    if (read_message(segment, number, entry)) record.messages.push_back(message_of(entry, scale));
  }
  return record;
}

Result<SegmentFile> read_segment_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return Status::native(Origin::kErrno, errno, "opening " + path);
  struct stat info {};
  Result<Mapped> mapped =
      fstat(fd, &info) == 0 ? map(fd, path, info) : Status::native(Origin::kErrno, errno, "looking at " + path);
  close(fd);
  if (!mapped.ok()) return mapped.status();
  SHARDCOMM_TRY(check((*mapped)->header, path));
  return SegmentFile{info.st_ino, record_of(**mapped)};
}

}  // namespace shardcomm
