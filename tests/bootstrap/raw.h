// The tcp store's protocol spoken by hand, well or badly, to see what the other end makes of it.
#pragma once
#include <fcntl.h>
#include <poll.h>

#include "bootstrap/auth.h"
#include "bootstrap/wire.h"
#include "tests/bootstrap/meeting.h"

namespace shardcomm::testing {

// A blocking connection with a limit of some seconds on everything.
class RawConnection {
 public:
  explicit RawConnection(int fd) : fd_(fd) {}
  RawConnection(RawConnection&& other) noexcept : fd_(std::exchange(other.fd_, -1)), in_(std::move(other.in_)) {}
  RawConnection& operator=(RawConnection&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(in_, other.in_);
    return *this;
  }
  ~RawConnection() { close(); }

  static RawConnection to(int port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = loopback(port);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0) << strerror(errno);
    return RawConnection(fd);
  }

  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // False where the other end closed, or said nothing for that long.
  bool read_more(std::chrono::milliseconds limit = 5s) {
    pollfd watched{fd_, POLLIN, 0};
    if (poll(&watched, 1, static_cast<int>(limit.count())) <= 0) return false;
    char piece[4096];
    const ssize_t got = recv(fd_, piece, sizeof piece, 0);
    if (got > 0) in_.append(piece, static_cast<size_t>(got));
    return got > 0;
  }
  // The next frame's type and body; a body of "closed" where there is none.
  std::pair<bootstrap::FrameType, std::string> receive() {
    for (;;) {
      bootstrap::Frame frame{};
      if (scan_frame(in_, bootstrap::kMemberBodyLimit, frame) == bootstrap::Scan::kFrame) {
        std::pair<bootstrap::FrameType, std::string> out(frame.type, frame.body);
        seen_ += in_.substr(0, frame.bytes);
        in_.erase(0, frame.bytes);
        return out;
      }
      if (!read_more()) return {bootstrap::FrameType::kGoodbye, "closed"};
    }
  }
  // Time until the other end closes, reading whatever comes.
  std::chrono::milliseconds until_closed(std::chrono::milliseconds limit) {
    const Deadline start = std::chrono::steady_clock::now();
    while (since(start) < limit && read_more(limit - since(start))) {
    }
    return since(start);
  }
  const std::string& seen() const { return seen_; }  // all frames received

 private:
  int fd_;
  std::string in_, seen_;
};

struct RawRank {
  uint32_t version = bootstrap::kProtocolVersion;
  Rank rank = 0;
  int world_size = 0;
  std::string secret = "the secret of this test";
};

// Hello, challenge, proof; gives the verdict, nothing where the store closed instead.
inline std::optional<bootstrap::Verdict> introduce(RawConnection& to, const RawRank& as) {
  using namespace bootstrap;
  Hello hello;
  hello.version = as.version;
  hello.rank = as.rank;
  hello.world_size = as.world_size;
  const std::string hello_frame = encode(hello);
  if (!to.send(hello_frame)) return std::nullopt;
  const auto [type, challenge_body] = to.receive();
  if (type != FrameType::kChallenge) return std::nullopt;
  const Proof proof{rank_proof(Secret(as.secret), hello_frame.substr(kHeaderBytes), challenge_body)};
  if (!to.send(encode(proof))) return std::nullopt;
  const auto [verdict_type, verdict_body] = to.receive();
  return verdict_type == FrameType::kVerdict ? decode_verdict(verdict_body) : std::nullopt;
}

// A listening socket on loopback.
class RawListener {
 public:
  explicit RawListener(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const sockaddr_in address = loopback(port);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0) << strerror(errno);
    EXPECT_EQ(listen(fd_, 16), 0);
  }
  ~RawListener() { close(fd_); }
  RawConnection accept() { return RawConnection(::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC)); }

 private:
  int fd_;
};

}  // namespace shardcomm::testing
