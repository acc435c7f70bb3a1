// Cross-memory attach: process_vm_readv(2), and why it may be refused.
#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>

#include "memory/memory.h"
#include "memory/token.h"

namespace shardcomm {
namespace {

constexpr size_t kCallBytes = size_t{1} << 30;  // one call moves less than 2 GiB

// Which of the usual gates is closed. The call itself only says EPERM.
std::string why_not_permitted() {
  int scope = 0;
  std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
  if (file >> scope && scope > 0) return fmt::format("/proc/sys/kernel/yama/ptrace_scope is {}", scope);
  return "another user, a process that is not dumpable, or a container's seccomp filter";
}

}  // namespace

AttachCard attach_card() {
  const Token& token = process_token_in_place();
  return {.pid = getpid(), .token_address = reinterpret_cast<uint64_t>(&token), .process = token};
}

Status read_peer(int32_t pid, void* target, uint64_t remote_address, size_t bytes) {
  auto* local = static_cast<std::byte*>(target);
  while (bytes > 0) {
    const size_t piece = std::min(bytes, kCallBytes);
    const iovec to = {.iov_base = local, .iov_len = piece};
    const iovec from = {.iov_base = reinterpret_cast<void*>(remote_address), .iov_len = piece};
    const ssize_t got = process_vm_readv(pid, &to, 1, &from, 1, 0);
    if (got <= 0) {
      const int error = got == 0 ? EFAULT : errno;
      return Status::native(Origin::kErrno, error,
                            fmt::format("reading {} bytes of process {} at {:#x}", bytes, pid, remote_address));
    }
    local += got;
    remote_address += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  return {};
}

Status probe_peer_read(const AttachCard& peer) {
  Token found;
  const Status status = read_peer(peer.pid, &found, peer.token_address, sizeof found);
  if (status.ok() && found == peer.process) return {};
  const auto unavailable = [&](std::string_view why) {
    return Status(Code::kUnavailable, fmt::format("cross-memory attach to process {}: {}", peer.pid, why));
  };
  if (status.ok()) return unavailable("that number means another process here (another node or container)");
  switch (status.native_value()) {
    case EPERM: return unavailable("not permitted: " + why_not_permitted());
    case ESRCH: return unavailable("no such process here (it ended, or another node or container)");
    case ENOSYS: return status.context("probing cross-memory attach");
    default: return unavailable(status.message());
  }
}

}  // namespace shardcomm
