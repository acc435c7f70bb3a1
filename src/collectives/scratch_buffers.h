// The buffers of a Scratch. A function that uses one fills it anew: only its room is kept between operations.
#pragma once
#include <vector>

#include "collectives/direct_source.h"
#include "collectives/reduce_rows.h"
#include "collectives/scratch.h"
#include "kernels/kernels.h"

namespace shardcomm {

struct Scratch::Buffers {
  // direct_copy.cc: one batch of rows.
  std::vector<kernels::CopySegment> copies;

  // all_to_all_v.cc: elements before the part for, or from, each rank.
  struct Pairs {
    std::vector<uint64_t> in_offsets, out_offsets;  // of this rank
    std::vector<uint64_t> no_offsets;               // of a rank of which nothing is left to take: zeros
    std::vector<const uint64_t*> rows;              // by rank: its in_offsets, in its announcement
  } pairs;

  // all_reduce_many.cc.
  std::vector<Item> shares;    // items, cut where the share of the next rank begins
  std::vector<size_t> bounds;  // of the shares of each rank

  // direct_reduce.cc.
  std::vector<Source> sources;             // by rank
  ReduceRows reductions;                   // one batch of rows
  std::vector<Location> locations;         // of one share that is attached, by rank
  std::vector<std::byte> pieces;           // of sources that are attached, by part of the share, then by rank
  std::vector<const void*> piece_sources;  // what is combined with them, in the same order
};

}  // namespace shardcomm
