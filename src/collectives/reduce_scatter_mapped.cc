// reduce_scatter, reduce_scatter_v, reduce_scatter_many: every rank reads its own share of every source and combines
// them in rank order, so there is one rounding (pull and accumulate, as in NCCL's symmetric kernels).
// Steps: inline 1 signal; direct 2. Bytes read by a rank: (n − 1)/n of the whole.
#include "collectives/algorithms.h"
#include "collectives/engine.h"

namespace shardcomm {

Status reduce_scatter_inline(Execution& execution) {
  const Operation& operation = execution.operation;
  return run_inline(execution,
                    {Geometry(Pattern::kReduce, execution.fabric.size(), operation.counts), operation.items});
}

Status reduce_scatter_direct(Execution& execution) {
  const Operation& operation = execution.operation;
  return run_direct(execution,
                    {Geometry(Pattern::kReduce, execution.fabric.size(), operation.counts), operation.items});
}

}  // namespace shardcomm
