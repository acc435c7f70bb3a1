// A connection as a rank sees it: it sends and receives whole frames, each within a deadline.
#pragma once
#include <string>
#include <string_view>

#include "bootstrap/socket.h"
#include "bootstrap/wire.h"

namespace shardcomm::bootstrap {

// One thread at a time.
class FrameStream {
 public:
  FrameStream() = default;
  explicit FrameStream(Fd fd) : fd_(std::move(fd)) {}

  // kPeerLost where the other end closed.
  Status send(std::string_view bytes, Deadline deadline);

  // The next frame; its body stays valid until the next call. kTimedOut; kPeerLost where the other end closed;
  // kFailedPrecondition where it does not speak the protocol.
  Result<Frame> receive(size_t body_limit, Deadline deadline);

  // Sends what fits into the socket at once and never waits: for a goodbye.
  void send_now(std::string_view bytes) noexcept;

  int fd() const noexcept { return fd_.get(); }

 private:
  Fd fd_;
  std::string in_;
  size_t consumed_ = 0;  // bytes at the front of in_ that belong to the frame returned last
};

}  // namespace shardcomm::bootstrap
