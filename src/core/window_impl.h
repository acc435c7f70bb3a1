// What a Window is: this rank's memory, and its place in the fabric that made it.
#pragma once
#include <memory>
#include <optional>
#include <string>

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
};

}  // namespace shardcomm
