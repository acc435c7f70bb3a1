#include "flight/json_writer.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

namespace shardcomm {
namespace {

constexpr char kDigits[] = "0123456789abcdef";

// Bytes of the UTF-8 character at the beginning of `text` (RFC 3629); 0: there is none.
size_t character_bytes(std::string_view text) noexcept {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  unsigned char least = 0x80, most = 0xbf;  // of the second byte: no overlong forms, surrogates or numbers beyond
  if (first == 0xe0) least = 0xa0;
  if (first == 0xed) most = 0x9f;
  if (first == 0xf0) least = 0x90;
  if (first == 0xf4) most = 0x8f;
  if (byte(1) < least || byte(1) > most) return 0;
  for (size_t i = 2; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return bytes;
}

// Of a standard error that somebody has made non-blocking.
bool wait_until_writable(int fd) noexcept {
  constexpr int kPatienceMs = 1000;
  pollfd wanted{fd, POLLOUT, 0};
  return poll(&wanted, 1, kPatienceMs) == 1;
}

}  // namespace

void JsonWriter::flush() noexcept {
  for (size_t sent = 0; sent < used_ && ok_;) {
    const ssize_t n = write(fd_, buffer_ + sent, used_ - sent);
    if (n > 0) {
      sent += static_cast<size_t>(n);
    } else {
      ok_ = n < 0 && (errno == EINTR || (errno == EAGAIN && wait_until_writable(fd_)));
    }
  }
  used_ = 0;
}

void JsonWriter::put(char c) noexcept {
  if (used_ == sizeof buffer_) flush();
  buffer_[used_++] = c;
}

JsonWriter& JsonWriter::raw(std::string_view json) noexcept {
  for (const char c : json) put(c);
  return *this;
}

JsonWriter& JsonWriter::number(int64_t value) noexcept {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  return raw({digits, static_cast<size_t>(end - digits)});
}

JsonWriter& JsonWriter::hexadecimal(uint64_t value) noexcept {
  put('"');
  for (int shift = 60; shift >= 0; shift -= 4) put(kDigits[value >> shift & 0xf]);
  put('"');
  return *this;
}

JsonWriter& JsonWriter::text(std::string_view value) noexcept {
  put('"');
  while (!value.empty()) {
    const size_t bytes = character_bytes(value);
    const auto c = static_cast<unsigned char>(value.front());
    if (bytes == 0) {
      raw("\\ufffd");
    } else if (c < 0x20) {
      raw("\\u00");
      put(kDigits[c >> 4]);
      put(kDigits[c & 0xf]);
    } else {
      if (c == '"' || c == '\\') put('\\');
      raw(value.substr(0, bytes));
    }
    value.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  put('"');
  return *this;
}

bool JsonWriter::finish() noexcept {
  flush();
  return ok_;
}

}  // namespace shardcomm
