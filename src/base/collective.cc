// The table of collectives, one row each, indexed by their values.
#include "shardcomm/collective.h"

#include <array>

namespace shardcomm {
namespace {

constexpr std::array<CollectiveTraits, kCollectiveCount> kTraits = {{
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
}};

constexpr CollectiveTraits kUnknown = {.name = "unknown", .pattern = Pattern::kGather, .has_elements = false};

}  // namespace

const CollectiveTraits& traits(Collective collective) noexcept {
  return is_valid(collective) ? kTraits[static_cast<size_t>(collective)] : kUnknown;
}

std::string_view name(Collective collective) noexcept { return traits(collective).name; }

std::optional<Collective> parse_collective(std::string_view text) noexcept {
  for (size_t i = 0; i < kTraits.size(); ++i) {
    if (kTraits[i].name == text) return static_cast<Collective>(i);
  }
  return std::nullopt;
}

bool reduces(Collective collective) noexcept { return traits(collective).reduces(); }

}  // namespace shardcomm
