// Between f32 and bf16: masters to values, checkpoints back to f32.
#include <cstring>
#include <string>

#include "kernels/enqueue.h"
#include "kernels/float_formats.h"
#include "kernels/kernels.h"

namespace shardcomm::kernels {
namespace {

void round_to_bf16(const float* __restrict from, uint16_t* __restrict to, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) {
    to[i] = static_cast<uint16_t>(BF16::from_f32(__builtin_bit_cast(uint32_t, from[i])));
  }
}

void widen_from_bf16(const uint16_t* __restrict from, float* __restrict to, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) to[i] = __builtin_bit_cast(float, BF16::to_f32(uint32_t{from[i]}));
}

void cast(const CastLaunch& args) noexcept {
  if (args.source_dtype == args.target_dtype) {
    if (args.count != 0) std::memcpy(args.target, args.source, args.count * size_of(args.source_dtype));
  } else if (args.target_dtype == DType::kBF16) {
    round_to_bf16(static_cast<const float*>(args.source), static_cast<uint16_t*>(args.target), args.count);
  } else {
    widen_from_bf16(static_cast<const uint16_t*>(args.source), static_cast<float*>(args.target), args.count);
  }
}

bool is_known(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

}  // namespace

Status launch(const CastLaunch& args, StreamRef stream) {
  if (!is_known(args.source_dtype) || !is_known(args.target_dtype)) {
    return Status(Code::kUnsupported, "cast: " + std::string(shardcomm::name(args.source_dtype)) + " to " +
                                          std::string(shardcomm::name(args.target_dtype)) +
                                          " is not offered; only f32 and bf16 are");
  }
  return enqueue(args, stream, cast, "cast");
}

}  // namespace shardcomm::kernels
