// What collectives must give, worked out independently of src/: inputs that any rank can compute for any other rank,
// number formats from their definitions, reductions on one thread in rank order, one element after the other.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shardcomm/types.h"

namespace shardcomm::testing {

// The seed of this test program: fresh each run, or what --gtest_random_seed says. All ranks have the same. Print it on
// failure.
uint64_t test_seed();

// Random bits from a seed and any number of counters.
uint64_t random_bits(uint64_t seed, uint64_t a = 0, uint64_t b = 0) noexcept;

// target[i] = element (first + i) of `rank`. Integers use their whole range; floats spread over some powers of two, so
// that sums round, with zeros of both signs, subnormals, infinities and NaNs strewn in.
void fill_elements(std::byte* target, uint64_t seed, Rank rank, size_t first, size_t count, DType dtype);

// target[i] = op over sources[0][i], sources[1][i], …, from left to right: f32 and f64 and integers in their own type
// (integers wrap), smaller floats in f32 and rounded once to nearest even; then times `scale`. max and min: a NaN wins,
// and -0 < +0. Complex numbers part by part. Bools as truth, written as 0 and 1.
void reduce_elements(std::byte* target, std::span<const std::byte* const> sources, size_t count, DType dtype,
                     ReduceOp op, double scale = 1);

// The small formats by definition. encode rounds to nearest even; beyond the largest finite value there is infinity,
// or NaN where the format has none (f8e4m3).
double decode_small(uint32_t bits, DType dtype);
uint32_t encode_small(float value, DType dtype);
bool is_small(DType dtype) noexcept;  // f16, bf16, f8e4m3, f8e5m2

// The first index where the bits differ and not both are NaN.
std::optional<size_t> first_difference(const std::byte* got, const std::byte* expected, size_t count, DType dtype);
std::string element_text(const std::byte* elements, size_t index, DType dtype);

// Inputs of every rank and all reductions of them, for every dtype. Made once on the main thread, then only read: by
// rank threads and, through fork, by rank processes.
class Reference {
 public:
  // elements(dtype) of each rank: at least `elements`, and at least `bytes` bytes.
  Reference(uint64_t seed, int ranks, size_t elements, size_t bytes);
  uint64_t seed() const noexcept { return seed_; }
  int ranks() const noexcept { return ranks_; }
  size_t elements(DType dtype) const noexcept;
  const std::byte* input(DType dtype, Rank rank, size_t first = 0) const noexcept;
  const std::byte* reduced(DType dtype, ReduceOp op, size_t first = 0) const noexcept;

 private:
  struct OfDType {
    size_t elements = 0;
    std::vector<std::vector<std::byte>> inputs;   // by rank
    std::vector<std::vector<std::byte>> reduced;  // by op; empty where not supported
  };
  uint64_t seed_;
  int ranks_;
  std::vector<OfDType> dtypes_;
};

}  // namespace shardcomm::testing
