// AdamW on plain arrays. Compiled without contraction to fused operations (CMakeLists.txt): vector body and scalar tail
// of a loop must round alike, or the bits would depend on where a shard begins.
#include <cmath>

#include "kernels/enqueue.h"
#include "kernels/kernels.h"

namespace shardcomm::kernels {
namespace {

void update(const AdamLaunch& args) noexcept {
  const AdamConstants c = args.constants;
  const float shrink = 1 - c.learning_rate * args.decay;
  const float* __restrict gradient = args.gradient;
  float* __restrict m = args.m;
  float* __restrict v = args.v;
  float* __restrict master = args.master;
  for (size_t i = 0; i < args.count; ++i) {
    const float g = gradient[i] * c.gradient_scale;
    m[i] = c.beta1 * m[i] + (1 - c.beta1) * g;
    v[i] = c.beta2 * v[i] + (1 - c.beta2) * (g * g);
    const float direction = m[i] * c.first_correction / (std::sqrt(v[i]) * c.second_correction + c.eps);
    master[i] = master[i] * shrink - c.learning_rate * direction;
  }
}

}  // namespace

Status launch(const AdamLaunch& args, StreamRef stream) { return enqueue(args, stream, update, "adam"); }

}  // namespace shardcomm::kernels
