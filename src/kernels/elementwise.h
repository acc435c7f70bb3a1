// Element-wise launches: what the ZeRO layer computes on its parameters, gradients and moments. They are part of the
// door; include kernels/kernels.h.
//
// launch() enqueues: the kernel runs when `stream` gets there, after everything enqueued before it and before
// everything enqueued later. On the caller stream it runs before launch() returns. The arguments are copied; the memory
// they point to must stay valid until the kernel has run. kUnavailable: the stream's queue is full. kUnsupported: a
// CUDA stream (whose kernels will stand beside the host twins), or a dtype that the launch does not name. Element i of
// a result depends on elements i of the operands only, and no operation is fused, so the bits do not depend on how a
// caller splits a range. Pointers are aligned to their element and do not overlap; count 0 is a success.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "shardcomm/status.h"
#include "shardcomm/stream.h"
#include "shardcomm/types.h"

namespace shardcomm::kernels {

// target[0, bytes) = value.
struct FillLaunch {
  void* target;
  uint8_t value = 0;
  size_t bytes;
};
Status launch(const FillLaunch& args, StreamRef stream);

// sum[i] += term[i], in f32. `dtype` of the terms: kF32 or kBF16.
struct AccumulateLaunch {
  float* sum;
  const void* term;
  DType dtype;
  size_t count;
};
Status launch(const AccumulateLaunch& args, StreamRef stream);

// target[i] = source[i], between kF32 and kBF16; equal dtypes are a copy. To bf16 it rounds to nearest, ties to even;
// NaN keeps its sign and the upper part of its payload, and becomes quiet.
struct CastLaunch {
  const void* source;
  DType source_dtype;
  void* target;
  DType target_dtype;
  size_t count;
};
Status launch(const CastLaunch& args, StreamRef stream);

// An update of AdamW (Loshchilov & Hutter 2019), with g = gradient * gradient_scale:
//   m = beta1 m + (1 - beta1) g        v = beta2 v + (1 - beta2) g²
//   master = master (1 - learning_rate decay) - learning_rate (m first_correction) / (sqrt(v) second_correction + eps)
struct AdamConstants {
  float beta1;
  float beta2;
  float eps;
  float learning_rate;
  float gradient_scale;
  float first_correction;   // 1 / (1 - beta1^t)
  float second_correction;  // 1 / sqrt(1 - beta2^t)
};
struct AdamLaunch {
  AdamConstants constants;
  float decay;
  const float* gradient;
  float* m;
  float* v;
  float* master;
  size_t count;
};
Status launch(const AdamLaunch& args, StreamRef stream);

// A 2-norm whose bits depend neither on how its elements are split over ranks nor on the order in which they are added:
// squares are rounded to a common fixed point, chosen from the largest element, and summed as integers (the idea of
// reproducible summation, Demmel & Nguyen 2013, with one bin). The error of each square is below 2^-51 of the largest.
// Use: the maximum of `largest` over all ranks -> SquareSumLaunch of each part -> all sums added word by word ->
// norm_of.

// *largest = max(*largest, |values[i]|), as the bits of an f32, which for magnitudes order as the numbers do: infinity
// above everything finite, NaN above infinity.
struct LargestMagnitudeLaunch {
  const float* values;
  size_t count;
  uint32_t* largest;
};
Status launch(const LargestMagnitudeLaunch& args, StreamRef stream);

// An integer of 128 bits in pieces of 32, each in a word of 64, so that words of many ranks can be added without carry.
using SquareSum = std::array<uint64_t, 4>;

// *sum += the squares of `values`, given the largest magnitude of all ranks. Up to 2^77 elements in all. Adds nothing
// when `largest` is 0 or not finite; then norm_of() does not read the sum.
struct SquareSumLaunch {
  const float* values;
  size_t count;
  uint32_t largest;
  SquareSum* sum;
};
Status launch(const SquareSumLaunch& args, StreamRef stream);

// The norm of everything added. Infinite or NaN when `largest` is.
double norm_of(const SquareSum& sum, uint32_t largest) noexcept;

}  // namespace shardcomm::kernels
