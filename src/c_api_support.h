// What the two halves of the C ABI share: handles and the thread's last error. Over the public C++ headers only.
#pragma once
#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <string>

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

// Remembers a failure for shardcomm_last_error.
shardcomm_code done(const Status& status) noexcept;

inline Status null_argument(const char* name) { return Status(Code::kInvalidArgument, std::string(name) + " is NULL"); }

// No exception crosses the ABI: what the standard library throws for lack of memory becomes a code.
template <class Body>
shardcomm_code guarded(Body&& body) noexcept {
  try {
    return done(body());
  } catch (const std::bad_alloc&) {
    return done(Status(Code::kOutOfMemory, "the heap is exhausted"));
  } catch (const std::exception& failure) {
    return done(Status(Code::kInternal, failure.what()));
  }
}

// Moves a result into a new handle.
template <class Handle, class T>
Status deliver(Result<T> result, Handle** out) {
  if (!result.ok()) return result.status();
  *out = new Handle{std::move(result).value()};
  return {};
}

Result<StreamRef> to_stream(shardcomm_stream stream);

// From now; a negative timeout is none, and a very long one a year.
inline Deadline to_deadline(int64_t timeout_ms) {
  constexpr int64_t kYear = int64_t{366} * 24 * 3600 * 1000;
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(std::clamp<int64_t>(timeout_ms, 0, kYear));
}

}  // namespace shardcomm::c_api

// Returns kInvalidArgument from a guarded body when a required pointer is NULL.
#define SHARDCOMM_REQUIRE(pointer) \
  if ((pointer) == nullptr) return ::shardcomm::c_api::null_argument(#pointer)
