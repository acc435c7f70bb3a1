#include "bootstrap/tcp/frame_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

namespace shardcomm::bootstrap {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

Status FrameStream::send(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
    if (sent >= 0 || errno == EINTR) continue;
    if (!would_block(errno)) return Status::native(Origin::kErrno, errno, "send");
    SHARDCOMM_TRY(wait_for(fd_.get(), POLLOUT, deadline));
  }
  return {};
}

Result<Frame> FrameStream::receive(size_t body_limit, Deadline deadline) {
  in_.erase(0, consumed_);
  consumed_ = 0;
  for (;;) {
    Frame frame{};
    const Scan scan = scan_frame(in_, body_limit, frame);
    if (scan == Scan::kBad)
      return Status(Code::kFailedPrecondition, "the other end does not speak shardcomm's protocol");
    if (scan == Scan::kFrame) {
      consumed_ = frame.bytes;
      return frame;
    }
    const size_t before = in_.size();
    in_.resize(before + kReadBytes);
    const ssize_t got = recv(fd_.get(), in_.data() + before, kReadBytes, 0);
    const int error = errno;
    in_.resize(before + (got > 0 ? static_cast<size_t>(got) : 0));
    if (got == 0) return Status(Code::kPeerLost, "the other end closed the connection");
    if (got > 0 || error == EINTR) continue;
    if (!would_block(error)) return Status::native(Origin::kErrno, error, "receive");
    SHARDCOMM_TRY(wait_for(fd_.get(), POLLIN, deadline));
  }
}

void FrameStream::send_now(std::string_view bytes) noexcept {
  (void)::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace shardcomm::bootstrap
