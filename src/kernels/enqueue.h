// How a launch reaches its stream: at once on the caller stream, in the stream's order on a host stream.
#pragma once
#include <string>
#include <string_view>

#include "shardcomm/status.h"
#include "shardcomm/stream.h"

namespace shardcomm::kernels {

// `host_twin` runs with a copy of `args`.
template <class Launch>
Status enqueue(const Launch& args, StreamRef stream, void (*host_twin)(const Launch&) noexcept, std::string_view name) {
  if (stream.is_caller()) {
    host_twin(args);
    return {};
  }
  if (stream.device().kind == Device::Kind::kHost) return stream.enqueue([args, host_twin] { host_twin(args); });
  return Status(Code::kUnsupported, std::string(name) + ": this build has no kernels for CUDA streams");
}

}  // namespace shardcomm::kernels
