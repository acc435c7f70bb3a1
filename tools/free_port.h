// A free loopback port that stays free: a socket bound to it but not listening. Others asking for any port do not get
// it, while rank 0, which binds with SO_REUSEADDR as we do, can.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "shardcomm/status.h"

namespace shardcomm::tools {

class FreePort {
 public:
  static Result<FreePort> reserve() {
    FreePort reserved(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (reserved.socket_ < 0 || setsockopt(reserved.socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(reserved.socket_, generic, length) != 0 || getsockname(reserved.socket_, generic, &length) != 0)
      return Status::native(Origin::kErrno, errno, "find a free port on 127.0.0.1");
    reserved.port_ = ntohs(address.sin_port);
    return reserved;
  }
  FreePort(FreePort&& other) noexcept : socket_(std::exchange(other.socket_, -1)), port_(other.port_) {}
  FreePort& operator=(FreePort&&) = delete;
  ~FreePort() {
    if (socket_ >= 0) close(socket_);
  }
  int port() const noexcept { return port_; }

 private:
  explicit FreePort(int socket) noexcept : socket_(socket) {}
  int socket_;
  int port_ = 0;
};

}  // namespace shardcomm::tools
