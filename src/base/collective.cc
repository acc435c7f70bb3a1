// The names of collectives, and back.
#include "shardcomm/collective.h"

namespace shardcomm {

std::string_view name(Collective collective) noexcept { return traits(collective).name; }

std::optional<Collective> parse_collective(std::string_view text) noexcept {
  for (int i = 0; i < kCollectiveCount; ++i) {
    if (kCollectiveTraits[i].name == text) return static_cast<Collective>(i);
  }
  return std::nullopt;
}

bool reduces(Collective collective) noexcept { return traits(collective).reduces(); }

}  // namespace shardcomm
