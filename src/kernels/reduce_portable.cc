// The host reduction for any processor: 16-byte vectors, which SSE2 and NEON have and others emulate.
#include "kernels/host_path.h"
#include "kernels/reduce_table.h"

namespace shardcomm::kernels {
namespace {

struct Portable {
  static constexpr size_t kVectorBytes = 16;
  static constexpr bool kStreams = false;
  using F16Block = PackedBlock<Portable, F16>;

  template <class V>
  SHARDCOMM_LANES static void stream(std::byte* to, V value) {
    store_lanes(to, value);
  }
  static void stream_fence() {}
};

}  // namespace

HostReduceFunction find_reduce_portable(DType dtype, ReduceOp op) { return find_reduce<Portable>(dtype, op); }

}  // namespace shardcomm::kernels
