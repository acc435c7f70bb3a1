// The algorithms by name, for the registry. Each pair stands in the file of its collective, <collective>_mapped.cc.
#pragma once
#include "collectives/collectives.h"

namespace shardcomm {

Status all_gather_inline(Execution& execution);  // also the _v and _many forms
Status all_gather_direct(Execution& execution);
Status all_gather_mosaic(Execution& execution);
Status reduce_scatter_inline(Execution& execution);  // also the _v and _many forms
Status reduce_scatter_direct(Execution& execution);
Status all_reduce_inline(Execution& execution);
Status all_reduce_direct(Execution& execution);
Status broadcast_inline(Execution& execution);
Status broadcast_direct(Execution& execution);
Status all_to_all_inline(Execution& execution);
Status all_to_all_direct(Execution& execution);
Status barrier_inline(Execution& execution);

}  // namespace shardcomm
