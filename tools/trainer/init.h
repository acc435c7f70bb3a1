// Initial weights as a function of (seed, parameter name, element index): the same whatever the world size, the
// sharding or the order in which parts are filled.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace shardcomm::trainer {

struct InitRule {
  float mean = 0;
  float stddev = 0;  // 0: every element is the mean

  bool operator==(const InitRule&) const = default;
};

// A part of one parameter: its elements first .. first + out.size().
struct InitPart {
  uint64_t seed;
  std::string_view name;
  size_t first;
};

void fill_initial(const InitPart& part, InitRule rule, std::span<float> out);

// The generator behind it and behind the data order: 64 well mixed bits of a counter (SplitMix64: Steele, Lea, Flood,
// 2014).
constexpr uint64_t mix_bits(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A key for one named stream of random numbers: FNV-1a over the name, then mixed with the seed. Initial weights and the
// data order follow from it, so another hash function would train another model.
constexpr uint64_t stream_key(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return mix_bits(mix_bits(seed) ^ hash);
}

}  // namespace shardcomm::trainer
