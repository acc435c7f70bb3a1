// The estimate: a dry run of the engine's own state machine, allocator and sizes, so that both agree.
#pragma once
#include "zero/footprint.h"

namespace shardcomm::zero {

// One training step in the declared order, carried out on numbers.
struct DryRun {
  size_t peak_bytes = 0;            // with AdamW
  size_t gradient_capacity = 0;     // of an arena in which no whole gradients lack room (stages 2 and 3)
  size_t unreduced_peak_bytes = 0;  // of whole gradients (stages 2 and 3)
  size_t gradient_lack_bytes = 0;   // of the first whole gradients that the arena had no room for; 0: it had for all
  size_t gather_count = 0;          // collectives
  size_t gather_bytes_sent = 0;
  size_t reduce_bytes_sent = 0;
  size_t publish_bytes_sent = 0;
};
DryRun dry_run(const Layout& layout, const ZeroOptions& options);

}  // namespace shardcomm::zero
