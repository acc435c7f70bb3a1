// Host paths: the same kernels for different instruction sets. All of them give the same bits; the best one that this
// processor can run is used. CMake chooses the host_paths_*.cc that lists them.
#pragma once
#include <cstddef>
#include <span>
#include <string_view>

#include "shardcomm/types.h"

namespace shardcomm::kernels {

struct HostReduce {
  std::byte* target;
  const void* const* sources;
  size_t source_count;  // at least 2
  size_t offset_bytes;  // into the target and every source
  size_t count;         // elements from there
  bool large;           // more than the caches hold: fetch ahead
  bool streaming;       // write past the caches, where the path can; target is none of the sources
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
bool exceeds_caches(size_t footprint_bytes) noexcept;

// For tests and benchmarks: another choice from here on, in all threads. Restored by the destructor.
class HostPathOverride {
 public:
  // `large_bytes`: the largest footprint that counts as held by the caches.
  HostPathOverride(const HostPath& path, size_t large_bytes) noexcept;
  ~HostPathOverride();
  HostPathOverride(const HostPathOverride&) = delete;
  HostPathOverride& operator=(const HostPathOverride&) = delete;
};

HostReduceFunction find_reduce_portable(DType dtype, ReduceOp op);
HostReduceFunction find_reduce_avx2(DType dtype, ReduceOp op);                  // x86-64 only
void copy_streaming(std::byte* target, const std::byte* source, size_t bytes);  // x86-64 only

}  // namespace shardcomm::kernels
