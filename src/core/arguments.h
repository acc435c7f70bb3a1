// The rules of communicator.h that need no peer: what a call must fulfil before anything is sent. Equal on every rank.
#pragma once
#include <span>

#include "shardcomm/communicator.h"

namespace shardcomm {

Status check(const AllGatherArgs& args, Rank rank, int size);
Status check(const ReduceScatterArgs& args, Rank rank, int size);
Status check(const AllReduceArgs& args);
Status check(const BroadcastArgs& args, int size);
Status check(const AllToAllArgs& args, int size);
Status check(const AllGatherVArgs& args, Rank rank, int size);
Status check(const ReduceScatterVArgs& args, Rank rank, int size);
Status check(std::span<const GatherItem> items, Rank rank, int size);
Status check(std::span<const ReduceItem> items, Rank rank, int size);

}  // namespace shardcomm
