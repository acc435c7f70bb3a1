// The rules of communicator.h that need no peer: what a call must fulfil before anything is sent. Equal on every rank.
#pragma once
#include "collectives/collectives.h"

namespace shardcomm {

// For a root that is yet to be put into the call of a _many form.
Status check_root_of_many(Rank root, int size);
Status check(const Operation& operation, Rank rank, int size);

}  // namespace shardcomm
