#include "zero/context.h"

#include <utility>

namespace shardcomm::zero {

StreamSpan StreamSpan::begin(StreamRef stream) {
  StreamSpan span;
  if (!trace_enabled()) return span;
  span.begin_ns_ = std::make_shared<int64_t>(0);
  // A stream that takes no task records no span.
  if (!stream.enqueue([begin = span.begin_ns_] { *begin = trace_now_ns(); }).ok()) span.begin_ns_.reset();
  return span;
}

Status StreamSpan::mark(StreamRef stream, Lane lane, const Context& context, std::string_view name, size_t bytes) {
  if (!trace_enabled()) return {};
  return stream.enqueue([lane, rank = context.comm.rank(), name = std::string(name), bytes] {
    const int64_t now = trace_now_ns();
    trace_record({name, lane, rank, now, now, bytes});
  });
}

Status StreamSpan::end(StreamRef stream, Lane lane, const Context& context, std::string_view name, size_t bytes) {
  if (begin_ns_ == nullptr) return {};
  return stream.enqueue(
      [begin = std::exchange(begin_ns_, nullptr), lane, rank = context.comm.rank(), name = std::string(name), bytes] {
        trace_record({name, lane, rank, *begin, trace_now_ns(), bytes});
      });
}

}  // namespace shardcomm::zero
