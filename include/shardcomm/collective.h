// The collectives, and what is true of each whoever executes it. Everything that depends on the collective reads its
// row here instead of naming collectives; docs/adding_a_collective.md says which files a new one touches.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "shardcomm/export.h"

namespace shardcomm {

// The values are part of the wire signature and of flight records: append only.
enum class Collective : uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kBroadcast,
  kAllToAll,
  kBarrier,
  kAllGatherV,
  kReduceScatterV,
  kAllGatherMany,
  kReduceScatterMany,
  kGather,
  kScatter,
  kReduce,
  kAllToAllV,
  kAllReduceMany,
  kBroadcastMany,
};
inline constexpr int kCollectiveCount = 16;

constexpr bool is_valid(Collective c) noexcept { return static_cast<int>(c) < kCollectiveCount; }

// A pattern says which bytes each reader takes from each source.
enum class Pattern : uint8_t {
  kGather,     // the reader takes all of every source's shard
  kReduce,     // the reader takes its own share of every source and combines them
  kReduceAll,  // the reader takes the whole of every source and combines them
  kBroadcast,  // the reader takes the whole of the root
  kExchange,   // the reader takes the part that every source holds for it
  kGatherTo,   // the root takes all of every source's shard, the other readers nothing
  kScatter,    // the reader takes the part that the root holds for it
  kReduceTo,   // the root takes the whole of every source and combines them, the other readers nothing
  kExchangeV,  // as kExchange, the parts of each pair of ranks having a length of their own
};

struct SHARDCOMM_EXPORT CollectiveTraits {
  std::string_view name;  // "all_gather_v"
  Pattern pattern;
  bool has_elements = true;  // of a count and an element type; a barrier has none
  bool has_root = false;
  bool is_ragged = false;  // rank r's shard has counts[r] elements
  bool is_many = false;    // several tensors in one call, each with its own element type

  constexpr bool reduces() const noexcept {
    return pattern == Pattern::kReduce || pattern == Pattern::kReduceAll || pattern == Pattern::kReduceTo;
  }
  // Returns whether the root is where the bytes go; otherwise they come from it.
  constexpr bool goes_to_root() const noexcept {
    return pattern == Pattern::kGatherTo || pattern == Pattern::kReduceTo;
  }
  // Returns whether each rank passes counts of its own, one for what it gives to and one for what it takes from each
  // rank. Such a call has no count that all ranks know.
  constexpr bool has_own_counts() const noexcept { return pattern == Pattern::kExchangeV; }
  // The whole buffer, in multiples of the call's count; of the forms whose counts say it themselves, 1.
  constexpr size_t whole(size_t ranks) const noexcept {
    const bool is_whole =
        pattern == Pattern::kReduceAll || pattern == Pattern::kReduceTo || pattern == Pattern::kBroadcast;
    return is_ragged || has_own_counts() || is_whole ? 1 : ranks;
  }
  // The most that one rank has to show its peers, in the same multiples. A single rank has no peers, but copies as
  // much.
  constexpr size_t announced(size_t ranks) const noexcept {
    const bool keeps_own = pattern == Pattern::kReduce || pattern == Pattern::kExchange || pattern == Pattern::kScatter;
    return is_ragged || !keeps_own || ranks < 2 ? 1 : ranks - 1;
  }
};

// A row for each, indexed by its value. The last row is that of every value that is not a collective.
inline constexpr CollectiveTraits kCollectiveTraits[kCollectiveCount + 1] = {
    {.name = "all_gather", .pattern = Pattern::kGather},
    {.name = "reduce_scatter", .pattern = Pattern::kReduce},
    {.name = "all_reduce", .pattern = Pattern::kReduceAll},
    {.name = "broadcast", .pattern = Pattern::kBroadcast, .has_root = true},
    {.name = "all_to_all", .pattern = Pattern::kExchange},
    {.name = "barrier", .pattern = Pattern::kGather, .has_elements = false},
    {.name = "all_gather_v", .pattern = Pattern::kGather, .is_ragged = true},
    {.name = "reduce_scatter_v", .pattern = Pattern::kReduce, .is_ragged = true},
    {.name = "all_gather_many", .pattern = Pattern::kGather, .is_many = true},
    {.name = "reduce_scatter_many", .pattern = Pattern::kReduce, .is_many = true},
    {.name = "gather", .pattern = Pattern::kGatherTo, .has_root = true},
    {.name = "scatter", .pattern = Pattern::kScatter, .has_root = true},
    {.name = "reduce", .pattern = Pattern::kReduceTo, .has_root = true},
    {.name = "all_to_all_v", .pattern = Pattern::kExchangeV},
    {.name = "all_reduce_many", .pattern = Pattern::kReduceAll, .is_many = true},
    {.name = "broadcast_many", .pattern = Pattern::kBroadcast, .has_root = true, .is_many = true},
    {.name = "unknown", .pattern = Pattern::kGather, .has_elements = false},
};

constexpr const CollectiveTraits& traits(Collective collective) noexcept {
  return kCollectiveTraits[is_valid(collective) ? static_cast<int>(collective) : kCollectiveCount];
}

SHARDCOMM_EXPORT std::string_view name(Collective collective) noexcept;
SHARDCOMM_EXPORT std::optional<Collective> parse_collective(std::string_view text) noexcept;  // inverse of name()
SHARDCOMM_EXPORT bool reduces(Collective collective) noexcept;                                // takes a ReduceOp

}  // namespace shardcomm
