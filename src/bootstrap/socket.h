// Sockets of the tcp store: all non-blocking, closed on exec, without Nagle's delay, with keepalive.
#pragma once
#include <netdb.h>
#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "shardcomm/status.h"
#include "shardcomm/types.h"

namespace shardcomm::bootstrap {

// Owner of a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int value) : value_(value) {}
  Fd(Fd&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Fd() { reset(); }
  void reset() noexcept;
  int get() const noexcept { return value_; }
  bool open() const noexcept { return value_ >= 0; }

 private:
  int value_ = -1;
};

struct Endpoint {
  std::string host;  // name, IPv4 or IPv6 address without brackets
  uint16_t port = 0;
  std::string text() const;  // "host:port", "[::1]:port"
};

struct Address {
  sockaddr_storage bytes{};
  socklen_t length = 0;
  std::string text() const;  // numeric, "127.0.0.1:29500"
  bool is_loopback() const;
};

// All addresses the host has, at most 16. May wait for a name server, which has its own deadline (resolv.conf).
Result<std::vector<Address>> resolve(const Endpoint& endpoint);

// A listening socket on each of the addresses that belong to this machine. kUnavailable where a port is in use, or
// where none belongs to it.
Result<std::vector<Fd>> listen_on(const Endpoint& endpoint, const std::vector<Address>& addresses);

// A connected socket, or the reason; waits at most until the deadline.
Result<Fd> connect_to(const Address& address, Deadline deadline);

Status tune_connection(int fd);  // for accepted ones

// POLLIN or POLLOUT (or an error) shows within the deadline: kTimedOut otherwise.
Status wait_for(int fd, short events, Deadline deadline);

int poll_timeout_ms(Deadline deadline);  // rounded up, 0 where it has passed

std::string peer_text(int fd);  // numeric address of the other end

}  // namespace shardcomm::bootstrap
