#include "bootstrap/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <thread>

namespace shardcomm::bootstrap {
namespace {

constexpr size_t kAddressLimit = 16;
constexpr int kBacklog = 4096;  // the kernel cuts it to net.core.somaxconn
// A dead machine, or a cable: found after 10 + 3 * 5 seconds.
constexpr int kKeepaliveIdleSeconds = 10;
constexpr int kKeepaliveIntervalSeconds = 5;
constexpr int kKeepaliveProbes = 3;
constexpr int kUnacknowledgedMs = 25'000;  // the same limit while bytes are under way
constexpr auto kPortRetry = std::chrono::milliseconds(500);

Status errno_status(const std::string& call) { return Status::native(Origin::kErrno, errno, call); }

Status set_option(int fd, int level, int option, int value) {
  if (setsockopt(fd, level, option, &value, sizeof value) == 0) return {};
  return errno_status(fmt::format("setsockopt {} {}", level, option));
}

sockaddr* as_sockaddr(sockaddr_storage& storage) { return reinterpret_cast<sockaddr*>(&storage); }
const sockaddr* as_sockaddr(const sockaddr_storage& storage) { return reinterpret_cast<const sockaddr*>(&storage); }

// A connect to a free port of this machine may, once in many thousand times, get that very port as its own and so
// meet itself.
bool met_itself(int fd) {
  Address near, far;
  near.length = far.length = sizeof(sockaddr_storage);
  if (getsockname(fd, as_sockaddr(near.bytes), &near.length) != 0) return false;
  if (getpeername(fd, as_sockaddr(far.bytes), &far.length) != 0) return false;
  return near.text() == far.text();
}

Result<Fd> try_listen(const Address& address) {
  Fd fd(socket(address.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.open()) return errno_status("socket for " + address.text());
  SHARDCOMM_TRY(set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1));
  if (address.bytes.ss_family == AF_INET6) SHARDCOMM_TRY(set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1));
  if (bind(fd.get(), as_sockaddr(address.bytes), address.length) != 0) return errno_status("bind " + address.text());
  if (listen(fd.get(), kBacklog) != 0) return errno_status("listen on " + address.text());
  return fd;
}

}  // namespace

void Fd::reset() noexcept {
  if (value_ >= 0) close(value_);
  value_ = -1;
}

std::string Endpoint::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

std::string Address::text() const {
  char host[NI_MAXHOST] = "?";
  char port[NI_MAXSERV] = "?";
  if (getnameinfo(as_sockaddr(bytes), length, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) !=
      0)
    return "unknown address";
  return bytes.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

bool Address::is_loopback() const {
  if (bytes.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &bytes, sizeof v4);
    return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
  }
  sockaddr_in6 v6;
  std::memcpy(&v6, &bytes, sizeof v6);
  return bytes.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

Result<std::vector<Address>> resolve(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
  if (error == EAI_SYSTEM) return errno_status("getaddrinfo " + endpoint.host);
  if (error != 0) {
    return Status(Code::kUnavailable, fmt::format("host name '{}': {}", endpoint.host, gai_strerror(error)));
  }
  std::vector<Address> addresses;
  for (const addrinfo* at = list; at != nullptr && addresses.size() < kAddressLimit; at = at->ai_next) {
    Address& address = addresses.emplace_back();
    address.length = at->ai_addrlen;
    std::memcpy(&address.bytes, at->ai_addr, at->ai_addrlen);
  }
  freeaddrinfo(list);
  return addresses;
}

Result<std::vector<Fd>> listen_on(const Endpoint& endpoint, const std::vector<Address>& addresses) {
  std::vector<Fd> listeners;
  Status foreign;
  // A rank that tried to connect before us may hold the port for a moment as its own end: see met_itself.
  const Deadline patience = std::chrono::steady_clock::now() + kPortRetry;
  for (const Address& address : addresses) {
    Result<Fd> made = try_listen(address);
    while (!made.ok() && made.status().native_value() == EADDRINUSE && std::chrono::steady_clock::now() < patience) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      made = try_listen(address);
    }
    if (made.ok()) {
      listeners.push_back(std::move(made).value());
    } else if (made.status().native_value() == EADDRINUSE) {
      return Status(Code::kUnavailable,
                    fmt::format("rank 0 can not listen on {}: the port is in use (by another job? take another port)",
                                address.text()));
    } else if (made.status().native_value() == EADDRNOTAVAIL || made.status().native_value() == EAFNOSUPPORT) {
      foreign = made.status();
    } else {
      return made.status();
    }
  }
  if (!listeners.empty()) return listeners;
  return Status(Code::kUnavailable, fmt::format("rank 0 can not listen on {}: the address does not belong to this "
                                                "machine, rank 0 must run where it does ({})",
                                                endpoint.text(), foreign.message()));
}

Result<Fd> connect_to(const Address& address, Deadline deadline) {
  Fd fd(socket(address.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.open()) return errno_status("socket for " + address.text());
  if (connect(fd.get(), as_sockaddr(address.bytes), address.length) != 0) {
    if (errno != EINPROGRESS) return errno_status("connect to " + address.text());
    SHARDCOMM_TRY(wait_for(fd.get(), POLLOUT, deadline).context("connecting to " + address.text()));
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return errno_status("getsockopt SO_ERROR");
    if (error != 0) return Status::native(Origin::kErrno, error, "connect to " + address.text());
  }
  if (met_itself(fd.get())) return Status::native(Origin::kErrno, ECONNREFUSED, "connect to " + address.text());
  SHARDCOMM_TRY(tune_connection(fd.get()));
  return fd;
}

Status tune_connection(int fd) {
  SHARDCOMM_TRY(set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1));
  SHARDCOMM_TRY(set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1));
  SHARDCOMM_TRY(set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdleSeconds));
  SHARDCOMM_TRY(set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveIntervalSeconds));
  SHARDCOMM_TRY(set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes));
  return set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledgedMs);
}

int poll_timeout_ms(Deadline deadline) {
  const auto now = std::chrono::steady_clock::now();
  if (deadline <= now) return 0;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<int>(std::min<decltype(left)>(left, INT_MAX));
}

Status wait_for(int fd, short events, Deadline deadline) {
  pollfd watched{fd, events, 0};
  for (;;) {
    const int ready = poll(&watched, 1, poll_timeout_ms(deadline));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return errno_status("poll");
    if (ready == 0 && std::chrono::steady_clock::now() >= deadline) return Status(Code::kTimedOut, "no answer in time");
  }
}

std::string peer_text(int fd) {
  Address far;
  far.length = sizeof(sockaddr_storage);
  if (getpeername(fd, as_sockaddr(far.bytes), &far.length) != 0) return "unknown address";
  return far.text();
}

}  // namespace shardcomm::bootstrap
