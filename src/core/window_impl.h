// What a Window is: this rank's memory, and its place in the fabric that made it. How ranks come to share memory.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shardcomm/window.h"
#include "transport/transport.h"

namespace shardcomm {

struct Window::Impl {
  ~Impl();
  std::optional<Segment> segment;  // none when registered
  std::byte* base = nullptr;
  size_t size_bytes = 0;
  std::string label;
  bool owns = false;
  std::weak_ptr<Fabric> fabric;
  uint32_t id = kNoWindow;
  Registration registration;  // of registered memory, where the transport needs one
};

class Core;

// One segment a rank, each mapped by all.
struct SharedMemory {
  Segment segment;
  std::vector<uint64_t> bases;  // by rank, in the owners' processes
  PeerMapping mapping;
};
// Collective; a failure on one rank is the same failure on all.
Result<SharedMemory> share_memory(Core& core, size_t bytes, std::string_view label);
// Adds it to the windows of the fabric.
std::unique_ptr<Window::Impl> window_over(Core& core, SharedMemory memory, std::string_view label);
// Collective: makes memory of the caller known to the transport, where the transport reaches memory only after it was
// pinned or registered.
Result<std::unique_ptr<Window::Impl>> enroll_memory(Core& core, std::span<std::byte> memory, std::string_view label);
// Collective: the first rank's failure, if there is one.
Status agree_on(Core& core, const Status& status, std::string_view label);

}  // namespace shardcomm
