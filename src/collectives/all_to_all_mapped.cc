// all_to_all: every rank reads the part that each source holds for it.
// Steps: inline 1 signal; direct 2. Bytes read by a rank: (n − 1)/n of the whole.
#include "collectives/algorithms.h"
#include "collectives/engine.h"

namespace shardcomm {

Status all_to_all_inline(Execution& execution) {
  return run_inline(execution, {Geometry(Pattern::kExchange, execution.fabric.size()), execution.operation.items});
}

Status all_to_all_direct(Execution& execution) {
  return run_direct(execution, {Geometry(Pattern::kExchange, execution.fabric.size()), execution.operation.items});
}

}  // namespace shardcomm
