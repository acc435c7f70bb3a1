// The rules of communicator.h that need no peer: what a call must fulfil before anything is sent. Equal on every rank.
#pragma once
#include "collectives/collectives.h"

namespace shardcomm {

Status check(const Operation& operation, Rank rank, int size);

}  // namespace shardcomm
