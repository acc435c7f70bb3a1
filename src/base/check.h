// Broken invariants stop the program: what follows would be wrong. A bad world (peer, memory, argument) is a Status.
#pragma once

namespace shardcomm {

// Writes the place, the condition and the text to stderr, then aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const char* text) noexcept;

}  // namespace shardcomm

#define SHARDCOMM_CHECK(condition, text)                                               \
  do {                                                                                 \
    if (!(condition)) ::shardcomm::check_failed(__FILE__, __LINE__, #condition, text); \
  } while (false)
