#include "transport/pairs.h"

#include <algorithm>
#include <bit>

namespace shardcomm {

PairTransports::PairTransports(std::vector<Reach> reach_by_rank) : reach_by_rank_(std::move(reach_by_rank)) {}

int PairTransports::row(Rank a, Rank b) const noexcept {
  const auto i = static_cast<size_t>(a), k = static_cast<size_t>(b);
  const auto both = static_cast<unsigned>(reach_by_rank_[i][k] & reach_by_rank_[k][i]);
  return both == 0 ? kNone : std::countr_zero(both);
}

std::vector<int> PairTransports::nodes(uint8_t rows) const {
  std::vector<int> node_of;
  std::vector<std::vector<size_t>> members;
  for (size_t r = 0; r < reach_by_rank_.size(); ++r) {
    const auto maps = [&](size_t member) {
      return (reach_by_rank_[r][member] & reach_by_rank_[member][r] & rows) != 0;
    };
    const auto node = std::find_if(members.begin(), members.end(),
                                   [&](const auto& node) { return std::all_of(node.begin(), node.end(), maps); });
    node_of.push_back(static_cast<int>(node - members.begin()));
    if (node == members.end()) members.emplace_back();
    members[static_cast<size_t>(node_of.back())].push_back(r);
  }
  return node_of;
}

}  // namespace shardcomm
