#include "bootstrap/tcp/connection.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace shardcomm::bootstrap {

Connection::Io Connection::read_some() {
  std::array<char, 64 << 10> piece;
  ssize_t got;
  do {
    got = recv(fd.get(), piece.data(), piece.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got > 0) in.append(piece.data(), static_cast<size_t>(got));
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))) return Io::kOk;
  if (got == 0) return Io::kClosed;
  io_error = Status::native(Origin::kErrno, errno, "receive").message();
  return Io::kFailed;
}

Connection::Io Connection::flush() {
  while (!out.empty()) {
    const std::string_view rest = std::string_view(*out.front()).substr(out_offset);
    const int more = out.size() > 1 ? MSG_MORE : 0;  // a reply's head and payload share a packet
    const ssize_t sent = send(fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL | more);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Io::kOk;
    if (sent < 0) {
      io_error = Status::native(Origin::kErrno, errno, "send").message();
      return Io::kFailed;
    }
    out_offset += static_cast<size_t>(sent);
    if (out_offset == out.front()->size()) {
      out.pop_front();
      out_offset = 0;
    }
  }
  return Io::kOk;
}

void Connection::say(std::string bytes) { out.push_back(std::make_shared<const std::string>(std::move(bytes))); }

void Connection::say(uint32_t id, Code code, std::shared_ptr<const std::string> payload) {
  say(encode_reply_head(id, code, payload->size()));
  if (!payload->empty()) out.push_back(std::move(payload));
}

}  // namespace shardcomm::bootstrap
