// A 2-norm whose bits do not depend on how its elements are split over ranks or in which order they are added: squares
// are rounded to a common fixed point, chosen from the largest element, and summed as integers (the idea of
// reproducible summation, Demmel & Nguyen 2013, with one bin). The error of each square is below 2^-51 of the largest.
// Use: largest over all ranks by maximum -> sum of squares of each part -> all sums added -> norm.
#pragma once
#include <array>
#include <cstdint>
#include <span>

namespace shardcomm::zero {

// The largest |value|, as the bits of an f32, which for magnitudes order as the numbers do: infinity above everything
// finite, NaN above infinity. 0 for an empty span.
uint32_t largest_magnitude(std::span<const float> values) noexcept;

// An integer of 128 bits in pieces of 32, each in a word of 64, so that words of many ranks can be added without carry.
using SquareSum = std::array<uint64_t, 4>;

// Adds the squares of `values`, given the largest magnitude of all ranks (finite, not 0). Up to 2^77 elements in all.
void add_squares(std::span<const float> values, uint32_t largest, SquareSum& sum) noexcept;

// The norm of everything added. Infinite or NaN when `largest` is.
double norm_of(const SquareSum& sum, uint32_t largest) noexcept;

}  // namespace shardcomm::zero
