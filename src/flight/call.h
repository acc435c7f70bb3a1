// Which fields of a recorded call mean something.
#pragma once
#include <cstdint>
#include <optional>

#include "flight/flight.h"
#include "shardcomm/plan.h"

namespace shardcomm {

struct CallFields {
  bool elements = false;  // count and dtype
  bool op = false;
  bool root = false;
  bool items = false;  // instead of dtype and op, which may differ from item to item; the count is that of all
};

constexpr std::optional<Collective> collective_of(uint8_t recorded) noexcept {
  if (recorded >= kCollectiveCount) return std::nullopt;  // an agreement
  return static_cast<Collective>(recorded);
}

constexpr CallFields fields_of(std::optional<Collective> collective) noexcept {
  if (!collective) return {};
  switch (*collective) {
    case Collective::kAllGather:
    case Collective::kAllGatherV:
    case Collective::kAllToAll: return {.elements = true};
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
    case Collective::kAllReduce: return {.elements = true, .op = true};
    case Collective::kBroadcast: return {.elements = true, .root = true};
    case Collective::kAllGatherMany:
    case Collective::kReduceScatterMany: return {.items = true};
    case Collective::kBarrier: return {};
  }
  return {};
}

}  // namespace shardcomm
