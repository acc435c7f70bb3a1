// barrier: the announcement itself. Steps: 1 signal; n − 1 lines read by each rank.
#include "collectives/algorithms.h"
#include "collectives/engine.h"

namespace shardcomm {

Status barrier_inline(Execution& execution) {
  return run_inline(execution, {Geometry(Pattern::kGather, execution.fabric.size()), {}});
}

}  // namespace shardcomm
