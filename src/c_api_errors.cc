// The C ABI of errors: each thread's last one, in words and in numbers; and of texts that callers own.
#include <cstdlib>
#include <cstring>

#include "c_api_support.h"

SHARDCOMM_GROWS(shardcomm_error, message, message, "");

namespace shardcomm::c_api {
namespace {

struct LastError {
  Status status;
  std::string text;  // "peer_lost: …": the message is its end
};

LastError& last_error() {
  thread_local LastError last;
  return last;
}

// The message without the code's name, zero-terminated.
const char* message_of(const LastError& last) {
  return last.text.empty() ? "" : last.text.c_str() + last.text.size() - last.status.message().size();
}

}  // namespace

shardcomm_code done(const Status& status) noexcept {
  if (status.ok()) return SHARDCOMM_OK;
  LastError& last = last_error();
  last.status = status;
  try {
    last.text = status.to_string();
  } catch (...) {
    last.text.clear();  // the code still says what happened
  }
  return static_cast<shardcomm_code>(status.code());
}

Status give_text(std::string_view text, char** out) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) return Status(Code::kOutOfMemory, "the heap is exhausted");
  text.copy(copy, text.size());
  copy[text.size()] = '\0';
  *out = copy;
  return {};
}

}  // namespace shardcomm::c_api

using namespace shardcomm;
using namespace shardcomm::c_api;

const char* shardcomm_code_name(shardcomm_code code) { return code_name(static_cast<Code>(code)).data(); }
const char* shardcomm_last_error(void) { return last_error().text.c_str(); }

shardcomm_code shardcomm_last_error_details(shardcomm_error* out) {
  if (out == nullptr) return SHARDCOMM_INVALID_ARGUMENT;
  const LastError& last = last_error();
  const shardcomm_error error{.struct_size = 0,
                              .code = static_cast<int32_t>(last.status.code()),
                              .origin = static_cast<int32_t>(last.status.origin()),
                              .native_code = last.status.native_value(),
                              .reserved = 0,
                              .message = message_of(last)};
  return static_cast<shardcomm_code>(write_growing(error, out, "out").code());
}

void shardcomm_string_free(char* text) { std::free(text); }
