// Host paths: the same kernels for different instruction sets. All of them give the same bits; the best one that this
// processor can run is used. CMake chooses the host_paths_*.cc that lists them.
#pragma once
#include <cstddef>
#include <span>
#include <string_view>

#include "kernels/kernels.h"

namespace shardcomm::kernels {

// Elements of a table of segments laid end to end: `count` of them from the `skipped`-th of the first segment on.
struct HostReduce {
  const ReduceSegment* segments;
  size_t source_count;  // at least 1
  size_t skipped;       // fewer than the first segment has
  size_t count;
  bool large;    // more than the caches hold
  double scale;  // of the result
};

using HostReduceFunction = void (*)(const HostReduce&);
using HostCopyFunction = void (*)(std::byte* target, const std::byte* source, size_t bytes);

struct HostPath {
  std::string_view name;
  bool (*runs_here)() noexcept;
  HostReduceFunction (*find_reduce)(DType, ReduceOp);  // null where !supports(dtype, op)
  HostCopyFunction copy_large;                         // for more bytes than the caches hold
};

// Best first; the last one runs everywhere.
std::span<const HostPath> host_paths() noexcept;

// What launches use. Any thread.
const HostPath& host_path() noexcept;
bool exceeds_caches(size_t traffic_bytes) noexcept;

// For tests and benchmarks: another choice from here on, in all threads. Restored by the destructor.
class HostPathOverride {
 public:
  // `large_bytes`: the most traffic that counts as held by the caches.
  HostPathOverride(const HostPath& path, size_t large_bytes) noexcept;
  ~HostPathOverride();
  HostPathOverride(const HostPathOverride&) = delete;
  HostPathOverride& operator=(const HostPathOverride&) = delete;
};

HostReduceFunction find_reduce_portable(DType dtype, ReduceOp op);
HostReduceFunction find_reduce_avx2(DType dtype, ReduceOp op);                  // x86-64 only
void copy_streaming(std::byte* target, const std::byte* source, size_t bytes);  // x86-64 only

}  // namespace shardcomm::kernels
