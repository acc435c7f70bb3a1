// broadcast: every rank reads the root. All ranks announce, so that a mismatch is an error on all of them.
// Steps: inline 1 signal; direct 2. Bytes read by a rank: the data; by the root: none.
#include "collectives/algorithms.h"
#include "collectives/engine.h"

namespace shardcomm {
namespace {

Geometry geometry(const Execution& execution) {
  return Geometry(Pattern::kBroadcast, execution.fabric.size(), {}, execution.operation.root);
}

}  // namespace

Status broadcast_inline(Execution& execution) {
  return run_inline(execution, {geometry(execution), execution.operation.items});
}
Status broadcast_direct(Execution& execution) {
  return run_direct(execution, {geometry(execution), execution.operation.items});
}

}  // namespace shardcomm
