// Moves the bytes of reductions: combines this rank's share of all sources where they can be read in place.
#pragma once
#include "collectives/engine.h"

namespace shardcomm {

// `own_fingerprint`: of this rank's source table. No source may have staged its bytes.
Status reduce_direct(Execution& execution, const Step& step, uint64_t own_fingerprint);

}  // namespace shardcomm
