// all_gather of a mosaic window: every rank's view is made of all ranks' pages, so nothing moves. The signal orders the
// owners' writes before the readers' reads.
// Steps: 1 signal. Bytes: none.
#include "collectives/engine.h"

namespace shardcomm {

Status all_gather_mosaic(Execution& execution) {
  announce(execution, 0, 0);
  return execution.fabric.control->collect(execution.limit);
}

}  // namespace shardcomm
