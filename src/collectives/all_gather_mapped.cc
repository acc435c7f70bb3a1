// all_gather, all_gather_v, all_gather_many: every rank reads every shard.
// Steps: inline 1 signal; direct 2. Bytes read by a rank: (n − 1)/n of the whole.
#include "collectives/algorithms.h"
#include "collectives/engine.h"

namespace shardcomm {

Status all_gather_inline(Execution& execution) {
  const Operation& operation = execution.operation;
  return run_inline(execution,
                    {Geometry(Pattern::kGather, execution.fabric.size(), operation.counts), operation.items});
}

Status all_gather_direct(Execution& execution) {
  const Operation& operation = execution.operation;
  return run_direct(execution,
                    {Geometry(Pattern::kGather, execution.fabric.size(), operation.counts), operation.items});
}

}  // namespace shardcomm
