// Random elements that every rank can compute for every rank, and the exact bits that collectives must make of them.
// Written without the library's own conversions and kernels, against which it is the witness.
#pragma once
#include <cstddef>
#include <cstdint>

#include "shardcomm/types.h"

namespace shardcomm::tools {

// Where the elements come from: equal on all ranks.
struct BenchValues {
  uint64_t seed = 0;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  int ranks = 1;
};

// Elements first .. first + count of the input of `rank`: all bit patterns for integers, ±[0.5, 2) for floating types.
void fill_values(const BenchValues& values, Rank rank, size_t first, size_t count, std::byte* out);

// How many of the `count` elements at `got` differ in any bit from those of `rank`.
size_t count_wrong_values(const BenchValues& values, Rank rank, size_t first, size_t count, const std::byte* got);

// The same against the reduction over all ranks: in rank order, 16- and 8-bit floats in f32 and rounded once to nearest
// even, integers modulo 2^bits.
size_t count_wrong_reductions(const BenchValues& values, size_t first, size_t count, const std::byte* got);

}  // namespace shardcomm::tools
