// Moves the bytes of gathers, exchanges and broadcasts: copies out of peers' memory, where it can be read in place.
#pragma once
#include "collectives/engine.h"

namespace shardcomm {

// Copies what this rank takes from all of its sources, in its reading order. `own_fingerprint`: of its source table.
Status copy_direct(Execution& execution, const Step& step, uint64_t own_fingerprint);
// The same from one source, this rank itself or a peer that has not staged its bytes. `own_fingerprint`: 0 where the
// source's is not to be compared.
Status copy_from(Execution& execution, const Step& step, Rank source, uint64_t own_fingerprint);

}  // namespace shardcomm
