// The recorder: making the segment, the few stores that an operation costs, and where dumps go.
#include "flight/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>

#include "flight/dump.h"
#include "flight/layout.h"
#include "flight/registry.h"
#include "flight/ticks.h"

namespace shardcomm {
namespace {

constexpr auto kRelease = std::memory_order_release;

Status failed(std::string_view call) {
  return Status::native(Origin::kErrno, errno, fmt::format("{} for the flight recorder", call));
}

// The fd of a zero-filled file that nobody can shrink under a reader (that would be SIGBUS).
Result<int> create_file() {
  const int fd = memfd_create(kFlightName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return failed("memfd_create");
  if (ftruncate(fd, sizeof(FlightSegment)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
    return fd;
  const Status status = failed("sizing a memfd");
  close(fd);
  return status;
}

void copy_text(char* target, size_t capacity, std::string_view text) noexcept {
  const size_t bytes = std::min(text.size(), capacity - 1);
  std::memcpy(target, text.data(), bytes);
  target[bytes] = '\0';
}

void fill(FlightHeader& header, const FlightRecorder::Place& place, bool counter_ticks) {
  header.layout = kFlightLayout;
  header.capacity = kFlightCapacity;
  header.job = place.job;
  header.communicator = place.communicator;
  header.rank = place.rank;
  header.size = place.size;
  header.pid = getpid();
  header.counter_ticks = counter_ticks ? 1 : 0;
  const TickMoment now = TickMoment::now(counter_ticks);
  header.created_ticks = now.ticks;
  header.created_steady_ns = now.steady_ns;
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  header.wall_offset_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(wall).count() - steady_now_ns();
  char host[sizeof header.host] = {};
  if (gethostname(host, sizeof host - 1) == 0) copy_text(header.host, sizeof header.host, host);
  copy_text(header.program, sizeof header.program, program_invocation_short_name);
  copy_text(header.version, sizeof header.version, SHARDCOMM_VERSION);
  header.magic.store(kFlightMagic, kRelease);
}

// Found out before the first failure, not at it.
Status check_directory(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0)
    return Status::native(Origin::kErrno, errno, fmt::format("looking at dump_dir '{}'", path));
  if (!S_ISDIR(info.st_mode)) return Status(Code::kInvalidArgument, fmt::format("dump_dir '{}' is no directory", path));
  if (access(path.c_str(), W_OK | X_OK) != 0)
    return Status::native(Origin::kErrno, errno, fmt::format("writing into dump_dir '{}'", path));
  return {};
}

// At most kLabelBytes − 1 bytes.
void store_label(FlightWord* words, std::string_view label) noexcept {
  uint64_t text[kFlightLabelWords] = {};
  std::memcpy(text, label.data(), label.size());
  for (size_t i = 0; i * sizeof(uint64_t) < label.size(); ++i) words[i].store(text[i], kRelease);
}

}  // namespace

Result<std::unique_ptr<FlightRecorder>> FlightRecorder::create(const Place& given, const Options& options) {
  Place place = given;
  if (place.job == 0) place.job = place.communicator;
  std::unique_ptr<FlightRecorder> recorder(new FlightRecorder);
  if (!options.dump_dir.empty()) {
    SHARDCOMM_TRY(check_directory(options.dump_dir));
    recorder->file_ = fmt::format("{}/shardcomm-flight-{:016x}-{:016x}-rank{}-pid{}.json", options.dump_dir, place.job,
                                  place.communicator, place.rank, getpid());
    recorder->unfinished_file_ = recorder->file_ + ".tmp";
  }
  SHARDCOMM_TRY_ASSIGN(recorder->fd_, create_file());
  void* mapped = mmap(nullptr, sizeof(FlightSegment), PROT_READ | PROT_WRITE, MAP_SHARED, recorder->fd_, 0);
  if (mapped == MAP_FAILED) return failed("mapping a memfd");
  recorder->segment_ = static_cast<FlightSegment*>(mapped);  // all zero, as a new file is
  recorder->counter_ticks_ = has_steady_counter();
  recorder->place_ = place;
  fill(recorder->segment_->header, place, recorder->counter_ticks_);
  list_recorder(recorder.get());
  SHARDCOMM_TRY(install_dump_signal(options));
  return recorder;
}

FlightRecorder::~FlightRecorder() {
  const bool may_unmap = !birthplace_.is_here() || segment_ == nullptr || unlist_recorder(this);
  if (segment_ != nullptr && may_unmap) munmap(segment_, sizeof *segment_);
  if (fd_ >= 0) close(fd_);
}

uint64_t FlightRecorder::now() const noexcept { return read_ticks(counter_ticks_); }

void FlightRecorder::enqueue(uint64_t epoch, const Call& call, std::string_view label, uint64_t now) noexcept {
  FlightCallRecord& record = segment_->calls[epoch % kFlightCapacity];
  label = kept_label(label);
  record.version.store(2 * epoch - 1, std::memory_order_relaxed);
  record.call.store(recorded_call(call, label.size()), kRelease);
  record.count.store(call.count, kRelease);
  record.enqueued.store(now, kRelease);
  if (!label.empty()) store_label(record.label, label);
  record.version.store(2 * epoch, kRelease);
}

void FlightRecorder::start(uint64_t epoch, uint64_t now) noexcept {
  FlightRunRecord& record = segment_->runs[epoch % kFlightCapacity];
  record.version.store(2 * epoch - 1, std::memory_order_relaxed);
  record.started.store(now, kRelease);
  record.outcome.store(0, kRelease);
  record.finished.store(0, kRelease);
  record.version.store(2 * epoch, kRelease);
}

void FlightRecorder::finish(uint64_t epoch, Code outcome) noexcept {
  FlightRunRecord& record = segment_->runs[epoch % kFlightCapacity];
  record.outcome.store(static_cast<uint64_t>(outcome), kRelease);
  record.finished.store(now(), kRelease);
}

uint64_t FlightRecorder::enqueue(const MessageCall& call, std::string_view label, bool starts) noexcept {
  const uint64_t number = messages_.fetch_add(1, std::memory_order_relaxed) + 1;
  FlightMessageRecord& record = segment_->messages[number % kFlightCapacity];
  label = kept_label(label);
  record.version.store(2 * number - 1, std::memory_order_relaxed);
  record.call.store((call.is_send ? 1U : 0U) | static_cast<uint64_t>(call.dtype) << 8 | label.size() << 24 |
                        static_cast<uint64_t>(static_cast<uint32_t>(call.tag)) << 32,
                    kRelease);
  record.peer.store(static_cast<uint64_t>(call.peer), kRelease);
  record.count.store(call.count, kRelease);
  const uint64_t now = this->now();
  record.enqueued.store(now, kRelease);
  record.started.store(starts ? now : 0, kRelease);
  record.outcome.store(0, kRelease);
  record.finished.store(0, kRelease);
  if (!label.empty()) store_label(record.label, label);
  record.version.store(2 * number, kRelease);
  return number;
}

// One that has been overwritten meanwhile, by a thousand later ones, is left alone.
void FlightRecorder::start_message(uint64_t number) noexcept {
  FlightMessageRecord& record = segment_->messages[number % kFlightCapacity];
  if (record.version.load(std::memory_order_relaxed) == 2 * number) record.started.store(now(), kRelease);
}

void FlightRecorder::finish_message(uint64_t number, Code outcome) noexcept {
  FlightMessageRecord& record = segment_->messages[number % kFlightCapacity];
  if (record.version.load(std::memory_order_relaxed) != 2 * number) return;
  record.outcome.store(static_cast<uint64_t>(outcome), kRelease);
  record.finished.store(now(), kRelease);
}

void FlightRecorder::fail(const Status& why) noexcept {
  if (!birthplace_.is_here()) return;
  FlightHeader& header = segment_->header;
  uint32_t none = 0;
  if (!header.failure.compare_exchange_strong(none, 1)) return;
  header.failure_code = static_cast<int32_t>(why.code());
  copy_text(header.failure_text, sizeof header.failure_text, why.message());
  header.failure.store(2, kRelease);
  if (!file_.empty()) dump("failure");
}

void FlightRecorder::dump(std::string_view reason) const noexcept {
  if (!birthplace_.is_here()) return;
  if (file_.empty()) {
    JsonWriter out(STDERR_FILENO);
    write_segment(out, *segment_, reason);
    out.finish();
    return;
  }
  const int fd = open(unfinished_file_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  if (fd < 0) return;
  JsonWriter out(fd);
  write_segment(out, *segment_, reason);
  const bool written = out.finish();
  close(fd);
  if (written) {
    rename(unfinished_file_.c_str(), file_.c_str());
  } else {
    unlink(unfinished_file_.c_str());
  }
}

}  // namespace shardcomm
