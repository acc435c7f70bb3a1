// Sums over micro-batches: always in f32, always sum + term.
#include <string>

#include "kernels/enqueue.h"
#include "kernels/float_formats.h"
#include "kernels/kernels.h"

namespace shardcomm::kernels {
namespace {

void add_f32(float* __restrict sum, const float* __restrict term, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) sum[i] += term[i];
}

void add_bf16(float* __restrict sum, const uint16_t* __restrict term, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) sum[i] += __builtin_bit_cast(float, BF16::to_f32(uint32_t{term[i]}));
}

void accumulate(const AccumulateLaunch& args) noexcept {
  if (args.dtype == DType::kF32) {
    add_f32(args.sum, static_cast<const float*>(args.term), args.count);
  } else {
    add_bf16(args.sum, static_cast<const uint16_t*>(args.term), args.count);
  }
}

}  // namespace

Status launch(const AccumulateLaunch& args, StreamRef stream) {
  if (args.dtype != DType::kF32 && args.dtype != DType::kBF16) {
    return Status(Code::kUnsupported,
                  "accumulate: terms must be f32 or bf16, not " + std::string(shardcomm::name(args.dtype)));
  }
  return enqueue(args, stream, accumulate, "accumulate");
}

}  // namespace shardcomm::kernels
