// The door of src/kernels: what may be launched to move and combine bytes. Each launch names its stream. Copies and
// reductions on a host stream run inline, as their host twin on the calling thread (which is that stream's thread); on
// a CUDA stream a kernel is enqueued. So an algorithm on mapped memory does not know which processor moves its bytes.
// The element-wise launches are enqueued on every stream (elementwise.h). Pointers need only be aligned to their
// element; counts may be anything, 0 included.
#pragma once
#include <span>

#include "device/device.h"
#include "kernels/elementwise.h"
#include "shardcomm/status.h"
#include "shardcomm/stream.h"
#include "shardcomm/types.h"

namespace shardcomm::kernels {

// `traffic_bytes` of a launch: the bytes that compete for the last-level cache while it runs, the launch's own and
// those that are read and written beside it. Where the cache does not hold them, targets are written with streaming
// stores. 0: twice what the launch itself reads and writes.

// target[0, bytes) = source[0, bytes). No overlap, but target == source is allowed and does nothing.
struct CopyLaunch {
  void* target;
  const void* source;
  size_t bytes;
  size_t traffic_bytes = 0;
};

// target[i] = round(scale * scale_down(op over k of sources[k][i])), k = 0, 1, …: the order of `sources` is the order
// of the sum, always left to right, so the bits do not depend on how a caller splits the range. Accumulation: f16, bf16
// and f8 in f32; f32, f64 and integers in their own type (integers wrap). kAverage divides the finished sum by
// sources.size() in the accumulation type. NaN: any NaN input gives NaN for kMax and kMin too, and −0 < +0 for them.
// A NaN result is the canonical one, all bits set but the sign, so bits never depend on the path or the processor.
// One source is a copy, bit for bit, unless it is scaled or of bools, whose results are 0 and 1.
// target may equal one of the sources (in place), and may not overlap them otherwise.
struct ReduceLaunch {
  void* target;
  std::span<const void* const> sources;
  size_t count;  // elements
  DType dtype;
  ReduceOp op;
  double scale = 1;  // of the result, in the accumulation type
  size_t traffic_bytes = 0;
};

// Tables of the above: one launch for the tensors of a whole model. The segments' targets are apart from each other and
// from the other segments' sources. `team`: threads that share a large launch on a host stream; null: the calling
// thread does all of it.
struct CopySegment {
  std::byte* target;
  const std::byte* source;
  size_t bytes;
};
struct CopySegmentsLaunch {
  std::span<const CopySegment> segments;
  size_t traffic_bytes = 0;
  HostTeam* team = nullptr;
};

struct ReduceSegment {
  std::byte* target;
  const void* const* sources;  // source_count of them
  size_t count;                // elements
};
struct ReduceSegmentsLaunch {
  std::span<const ReduceSegment> segments;
  size_t source_count;
  DType dtype;
  ReduceOp op;
  double scale = 1;  // of the result, in the accumulation type
  size_t traffic_bytes = 0;
  HostTeam* team = nullptr;
};

Status launch(const CopyLaunch& args, StreamRef stream);
Status launch(const CopySegmentsLaunch& args, StreamRef stream);
// kUnsupported where !supports(dtype, op), kInvalidArgument without sources.
Status launch(const ReduceLaunch& args, StreamRef stream);
Status launch(const ReduceSegmentsLaunch& args, StreamRef stream);

}  // namespace shardcomm::kernels
