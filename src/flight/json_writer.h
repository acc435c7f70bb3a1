// JSON to a file descriptor without allocating, for use in a signal handler.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shardcomm {

// One thread. Numbers and texts follow what raw() has written; commas and braces are the caller's.
class JsonWriter {
 public:
  explicit JsonWriter(int fd) noexcept : fd_(fd) {}

  JsonWriter& raw(std::string_view json) noexcept;
  JsonWriter& number(int64_t value) noexcept;
  JsonWriter& hexadecimal(uint64_t value) noexcept;   // as a text of 16 digits
  JsonWriter& text(std::string_view value) noexcept;  // quoted; what is not UTF-8 becomes U+FFFD
  bool finish() noexcept;                             // writes what is left; whether all of it was written

 private:
  void put(char c) noexcept;
  void flush() noexcept;

  int fd_;
  bool ok_ = true;
  size_t used_ = 0;
  char buffer_[1024];  // small: the handler may run on an alternate stack
};

}  // namespace shardcomm
