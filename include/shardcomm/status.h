// Status: success, or what went wrong, where, and the native code behind it.
// Copyable and immutable; const members may be called from any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "shardcomm/export.h"

namespace shardcomm {

// The values are the C ABI's shardcomm_code: append only.
enum class Code : int32_t {
  kOk = 0,
  kInvalidArgument,     // the caller's arguments, whatever the state of the world
  kFailedPrecondition,  // right arguments, wrong moment (order of calls, ranks that disagree)
  kUnsupported,         // not offered by this build, machine or (dtype, op) pair
  kUnavailable,         // not now: a full queue, a missing library or file; trying again may help
  kTimedOut,            // a deadline passed; the text says what was waited for and who had not arrived
  kPeerLost,            // a rank's process ended or its connection broke
  kAborted,             // some rank called abort, or failed first; the text carries its reason
  kOutOfMemory,
  kDevice,    // the accelerator or its driver failed
  kSystem,    // an operating system call failed
  kInternal,  // a defect in shardcomm
  kDataLoss,  // bytes read are not the bytes written: a bad checksum, a truncated file
};

SHARDCOMM_EXPORT std::string_view code_name(Code code) noexcept;  // "peer_lost"

// Whose number native_value() is.
enum class Origin : uint8_t { kNone, kErrno, kCuda, kVerbs, kUcx, kNccl };

class [[nodiscard]] SHARDCOMM_EXPORT Status {
 public:
  Status() noexcept = default;  // success: one null pointer, no allocation
  Status(Code code, std::string message);
  // The code is derived from (origin, value); `call` says what was attempted: "mmap 4096 bytes".
  static Status native(Origin origin, int value, std::string_view call);

  bool ok() const noexcept { return rep_ == nullptr; }
  Code code() const noexcept;
  Origin origin() const noexcept;
  int native_value() const noexcept;
  std::string_view message() const noexcept;     // without the code's name
  std::string to_string() const;                 // "peer_lost: while gathering unit blocks.7: rank 3 ended"
  Status context(std::string_view doing) const;  // prepends "while <doing>: "; success stays success
  Status note(std::string_view remark) const;    // appends " (<remark>)"; success stays success

 private:
  struct Rep;
  std::shared_ptr<const Rep> rep_;
};

// A T, or the Status that explains its absence.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}        // NOLINT: implicit on purpose
  Result(Status error) : status_(std::move(error)) {}  // NOLINT: implicit on purpose
  bool ok() const noexcept { return value_.has_value(); }
  const Status& status() const noexcept { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T& operator*() & { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace shardcomm

// Returns the failing Status of `expr` from the enclosing function.
#define SHARDCOMM_TRY(expr)                                                                       \
  do {                                                                                            \
    if (::shardcomm::Status shardcomm_try_ = (expr); !shardcomm_try_.ok()) return shardcomm_try_; \
  } while (false)

// SHARDCOMM_TRY_ASSIGN(auto x, make_x()): declares x from a Result, or returns its Status.
#define SHARDCOMM_TRY_ASSIGN(target, expr) SHARDCOMM_TRY_ASSIGN_AT_(target, expr, __COUNTER__)
#define SHARDCOMM_TRY_ASSIGN_AT_(target, expr, n) SHARDCOMM_TRY_ASSIGN_IN_(target, expr, n)
#define SHARDCOMM_TRY_ASSIGN_IN_(target, expr, n)                       \
  auto shardcomm_result_##n = (expr);                                   \
  if (!shardcomm_result_##n.ok()) return shardcomm_result_##n.status(); \
  target = std::move(shardcomm_result_##n).value()
