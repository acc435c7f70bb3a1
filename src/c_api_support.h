// What the parts of the C ABI share: handles, the thread's last error, translations of arguments. Over the public C++
// headers only.
#pragma once
#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <string>

#include "c_api_growth.h"
#include "shardcomm/c.h"
#include "shardcomm/shardcomm.h"

struct shardcomm_store {
  std::unique_ptr<shardcomm::Store> store;
};
struct shardcomm_comm {
  shardcomm::Communicator comm;
};
struct shardcomm_window {
  shardcomm::Window window;
};
struct shardcomm_mosaic {
  shardcomm::MosaicWindow mosaic;
};
struct shardcomm_work {
  shardcomm::Work work;
};
struct shardcomm_zero {
  shardcomm::ZeroEngine engine;
  shardcomm::Status unreported = {};  // of shardcomm_zero_zero_gradients, for the next hook
};
struct shardcomm_adam {
  shardcomm::AdamW adam;
};

namespace shardcomm::c_api {

// Remembers a failure for shardcomm_last_error and shardcomm_last_error_details.
shardcomm_code done(const Status& status) noexcept;

inline Status null_argument(const char* name) { return Status(Code::kInvalidArgument, std::string(name) + " is NULL"); }

// No exception crosses the ABI: what the standard library throws for lack of memory, or a caller's function whatever it
// is written in, becomes a code.
template <class Body>
shardcomm_code guarded(Body&& body) noexcept {
  try {
    return done(body());
  } catch (const std::bad_alloc&) {
    return done(Status(Code::kOutOfMemory, "the heap is exhausted"));
  } catch (const std::exception& failure) {
    return done(Status(Code::kInternal, failure.what()));
  } catch (...) {
    return done(Status(Code::kInternal, "something was thrown that is not a std::exception"));
  }
}

// Moves a result into a new handle.
template <class Handle, class T>
Status deliver(Result<T> result, Handle** out) {
  if (!result.ok()) return result.status();
  *out = new Handle{std::move(result).value()};
  return {};
}

// Gives the caller a copy of his own, for shardcomm_string_free.
Status give_text(std::string_view text, char** out);

Result<StreamRef> to_stream(shardcomm_stream stream);

// Out of range stays out of range, for the callee's own check and message.
inline DType to_dtype(int32_t dtype) {
  return dtype >= 0 && dtype < kDTypeCount ? static_cast<DType>(dtype) : static_cast<DType>(255);
}
inline ReduceOp to_op(int32_t op) {
  return op >= 0 && op < kReduceOpCount ? static_cast<ReduceOp>(op) : static_cast<ReduceOp>(255);
}

inline std::string_view text(const char* given) { return given == nullptr ? std::string_view() : given; }

// Members that later versions may give a meaning.
inline Status check_reserved(int32_t reserved, const char* what) {
  if (reserved == 0) return {};
  return Status(Code::kInvalidArgument, std::string(what) + " must be 0, got " + std::to_string(reserved));
}

// From now; a negative timeout is none, and a very long one a year.
inline Deadline to_deadline(int64_t timeout_ms) {
  constexpr int64_t kYear = int64_t{366} * 24 * 3600 * 1000;
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(std::clamp<int64_t>(timeout_ms, 0, kYear));
}

// Every collective: translate the stream, call, hand out the work if it is wanted.
template <class Call>
shardcomm_code collective(shardcomm_comm* comm, shardcomm_stream stream, shardcomm_work** work, Call&& call) noexcept {
  return guarded([&]() -> Status {
    if (comm == nullptr) return null_argument("comm");
    SHARDCOMM_TRY_ASSIGN(const StreamRef on, to_stream(stream));
    Result<Work> result = call(comm->comm, on);
    if (work == nullptr || !result.ok()) return result.status();
    return deliver(std::move(result), work);
  });
}

}  // namespace shardcomm::c_api

// Returns kInvalidArgument from a guarded body when a required pointer is NULL.
#define SHARDCOMM_REQUIRE(pointer) \
  if ((pointer) == nullptr) return ::shardcomm::c_api::null_argument(#pointer)
