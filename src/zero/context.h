// What the parts of one engine share, and how they show in a timeline.
#pragma once
#include <memory>
#include <string>

#include "kernels/kernels.h"
#include "shardcomm/communicator.h"
#include "shardcomm/trace.h"
#include "zero/memory_account.h"
#include "zero/unit.h"

namespace shardcomm::zero {

struct Context {
  Communicator& comm;
  const Layout& layout;
  const ZeroOptions& options;
  MemoryAccount& account;
  StreamRef stream;  // the engine's own, on which its collectives run

  size_t rank() const noexcept { return static_cast<size_t>(comm.rank()); }
};

// Makes NaN of f32 and of bf16 (ZeroOptions::poison_freed).
inline kernels::FillLaunch poisoning(std::byte* data, size_t bytes) noexcept {
  return {.target = data, .value = 0xff, .bytes = bytes};
}

// Times what a stream runs between two points. Does nothing, and allocates nothing, while no trace is recorded.
class StreamSpan {
 public:
  // A point in time, as a span of no length.
  static Status mark(StreamRef stream, Lane lane, const Context& context, std::string_view name, size_t bytes);

  StreamSpan() = default;
  static StreamSpan begin(StreamRef stream);
  // Records, once the stream gets here. `name` is copied.
  Status end(StreamRef stream, Lane lane, const Context& context, std::string_view name, size_t bytes);

 private:
  std::shared_ptr<int64_t> begin_ns_;  // written and read on the stream
};

}  // namespace shardcomm::zero
