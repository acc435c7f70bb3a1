// Part of the door transport/transport.h: which transport serves which pair of ranks, as a value. Every rank tells all
// others which peers it has reached by which transports; since all ranks compute from the same reports, all agree.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shardcomm/types.h"

namespace shardcomm {

// A rank's report: for each peer, itself included, bit i is set where row i of transports() reaches it.
using Reach = std::vector<uint8_t>;
inline constexpr size_t kMostTransportRows = 8;

class PairTransports {
 public:
  static constexpr int kNone = -1;

  // All reports have one entry for each rank.
  explicit PairTransports(std::vector<Reach> reach_by_rank);

  // The first row by which both ranks reach each other, or kNone.
  int row(Rank a, Rank b) const noexcept;
  // By rank, the index of its node. A node is ranks that all reach each other by one of `rows`, a mask of the rows of
  // mapped transports; nodes are numbered by their first ranks.
  std::vector<int> nodes(uint8_t rows) const;

 private:
  std::vector<Reach> reach_by_rank_;
};

}  // namespace shardcomm
