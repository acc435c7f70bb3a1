// Part of the door memory/memory.h. Ordinary memory of a peer can be read with cross-memory attach, where the system
// permits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "memory/process.h"
#include "shardcomm/status.h"

namespace shardcomm {

// Tells peers where a process can be probed for cross-memory attach.
struct AttachCard {
  int32_t pid = 0;
  int32_t reserved = 0;
  uint64_t token_address = 0;  // of process_token() in that process
  Token process;
};
static_assert(std::is_trivially_copyable_v<AttachCard> && sizeof(AttachCard) == 32);

AttachCard attach_card();

// Finds out whether read_peer works with that process, by reading its token. kUnavailable with the reason where it does
// not (permission, Yama, seccomp, another pid namespace, an ended process), kUnsupported on a kernel without the call.
Status probe_peer_read(const AttachCard& peer);

// target[0, bytes) = memory of process pid at remote_address: one copy, made by the calling thread. kPeerLost where the
// process has ended; on errors part of target may have been written. Any thread.
Status read_peer(int32_t pid, void* target, uint64_t remote_address, size_t bytes);

// GB/s of one rank that reads a peer's ordinary memory: by cross-memory attach (0 where it does not work at all), or
// through a staging ring, both copies together. Measured on this process's own memory, once, in about half a
// millisecond.
struct AccessSpeed {
  double attach_gbs = 0;
  double staged_gbs = 0;
};
AccessSpeed access_speed();

}  // namespace shardcomm
