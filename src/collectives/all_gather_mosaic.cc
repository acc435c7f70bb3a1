// all_gather of a mosaic window: every rank's view is made of all ranks' pages, so nothing moves. The signal orders the
// owners' writes before the readers' reads.
// Steps: 1 signal. Bytes: none.
#include "collectives/algorithms.h"
#include "collectives/engine.h"

namespace shardcomm {

Status all_gather_mosaic(Execution& execution) {
  constexpr uint8_t kPhase = 2;  // no all_gather that copies has it: they would not agree
  announce(execution, kPhase, 0);
  return execution.fabric.collect(execution.limit);
}

}  // namespace shardcomm
