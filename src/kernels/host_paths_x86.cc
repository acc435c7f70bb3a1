// Host paths of x86-64.
#include <cpuid.h>

#include "kernels/host_path.h"

namespace shardcomm::kernels {
namespace {

// __builtin_cpu_supports asks the operating system about the registers too; Clang's does not know f16c.
bool has_avx2_and_f16c() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace

std::span<const HostPath> host_paths() noexcept {
  static constexpr HostPath kPaths[] = {
      {.name = "avx2", .runs_here = has_avx2_and_f16c, .find_reduce = find_reduce_avx2, .copy_large = copy_streaming},
      {.name = "portable",
       .runs_here = []() noexcept { return true; },
       .find_reduce = find_reduce_portable,
       .copy_large = copy_streaming},
  };
  return kPaths;
}

}  // namespace shardcomm::kernels
