// Status: one shared, immutable record of what went wrong, and the map from native numbers to codes.
#include "shardcomm/status.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace shardcomm {

struct Status::Rep {
  Code code;
  Origin origin;
  int native_value;
  std::string message;
};

std::string_view code_name(Code code) noexcept {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kInvalidArgument: return "invalid_argument";
    case Code::kFailedPrecondition: return "failed_precondition";
    case Code::kUnsupported: return "unsupported";
    case Code::kUnavailable: return "unavailable";
    case Code::kTimedOut: return "timed_out";
    case Code::kPeerLost: return "peer_lost";
    case Code::kAborted: return "aborted";
    case Code::kOutOfMemory: return "out_of_memory";
    case Code::kDevice: return "device";
    case Code::kSystem: return "system";
    case Code::kInternal: return "internal";
    case Code::kDataLoss: return "data_loss";
  }
  return "unknown";
}

namespace {

Code code_of_errno(int value) {
  switch (value) {
    case ENOMEM: return Code::kOutOfMemory;
    case ETIMEDOUT: return Code::kTimedOut;
    case ENOSYS:
    case EOPNOTSUPP:
    case EAFNOSUPPORT:
    case EPROTONOSUPPORT: return Code::kUnsupported;
    // Permission, a missing file, a used-up limit: the same call may succeed once the world has changed.
    case EACCES:
    case EPERM:
    case ENOENT:
    case EAGAIN:
    case EBUSY:
    case EMFILE:
    case ENFILE:
    case ENOSPC:
    case EDQUOT:
    case EADDRINUSE:
    case EADDRNOTAVAIL:
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EROFS: return Code::kUnavailable;
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ENOTCONN:
    case ESRCH: return Code::kPeerLost;
    case EIO: return Code::kDataLoss;
    default: return Code::kSystem;
  }
}

std::string_view origin_name(Origin origin) {
  switch (origin) {
    case Origin::kNone: return "native";
    case Origin::kErrno: return "errno";
    case Origin::kCuda: return "cuda";
    case Origin::kVerbs: return "verbs";
    case Origin::kUcx: return "ucx";
    case Origin::kNccl: return "nccl";
  }
  return "unknown";
}

// What to change where a limit of this process is the cause.
std::string remedy(int value) {
  rlimit limit{};
  if (value != EMFILE || getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  return fmt::format("; this process may have {} open files: raise ulimit -n", limit.rlim_cur);
}

// "ENOMEM, Cannot allocate memory": the symbol to search for, then the words. Both functions are thread-safe.
std::string errno_text(int value) {
  const char* symbol = strerrorname_np(value);
  const char* words = strerrordesc_np(value);
  if (symbol == nullptr || words == nullptr) return fmt::format("errno {}", value);
  return fmt::format("{}, {}{}", symbol, words, remedy(value));
}

}  // namespace

Status::Status(Code code, std::string message) {
  if (code == Code::kOk) return;
  rep_ = std::make_shared<const Rep>(Rep{code, Origin::kNone, 0, std::move(message)});
}

Status Status::native(Origin origin, int value, std::string_view call) {
  // Verbs report errno values; the other libraries have numbers of their own.
  const bool is_errno = origin == Origin::kErrno || origin == Origin::kVerbs;
  Code code = Code::kSystem;
  if (is_errno) code = code_of_errno(value);
  if (origin == Origin::kCuda) code = Code::kDevice;
  std::string message = is_errno ? fmt::format("{}: {}", call, errno_text(value))
                                 : fmt::format("{}: {} error {}", call, origin_name(origin), value);
  Status status;
  status.rep_ = std::make_shared<const Rep>(Rep{code, origin, value, std::move(message)});
  return status;
}

Code Status::code() const noexcept { return rep_ ? rep_->code : Code::kOk; }
Origin Status::origin() const noexcept { return rep_ ? rep_->origin : Origin::kNone; }
int Status::native_value() const noexcept { return rep_ ? rep_->native_value : 0; }
std::string_view Status::message() const noexcept {
  return rep_ ? std::string_view(rep_->message) : std::string_view();
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  return fmt::format("{}: {}", code_name(rep_->code), rep_->message);
}

Status Status::context(std::string_view doing) const {
  if (ok()) return {};
  Status status;
  status.rep_ = std::make_shared<const Rep>(
      Rep{rep_->code, rep_->origin, rep_->native_value, fmt::format("while {}: {}", doing, rep_->message)});
  return status;
}

Status Status::note(std::string_view remark) const {
  if (ok()) return {};
  Status status;
  status.rep_ = std::make_shared<const Rep>(
      Rep{rep_->code, rep_->origin, rep_->native_value, fmt::format("{} ({})", rep_->message, remark)});
  return status;
}

}  // namespace shardcomm
