// Fills memory with one byte: zeros for gradients, NaN patterns for memory that has been freed.
#include <cstring>

#include "kernels/enqueue.h"
#include "kernels/kernels.h"

namespace shardcomm::kernels {
namespace {

void fill(const FillLaunch& args) noexcept {
  if (args.bytes != 0) std::memset(args.target, args.value, args.bytes);
}

}  // namespace

Status launch(const FillLaunch& args, StreamRef stream) { return enqueue(args, stream, fill, "fill"); }

}  // namespace shardcomm::kernels
