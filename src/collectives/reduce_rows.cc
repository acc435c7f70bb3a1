#include "collectives/reduce_rows.h"

namespace shardcomm {

Status ReduceRows::launch(const Execution& execution) const {
  const std::span segments(segments_);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto& [dtype, op, scale, first] = groups_[g];
    const size_t end = g + 1 < groups_.size() ? groups_[g + 1].first : segments.size();
    const kernels::ReduceSegmentsLaunch rows{.segments = segments.subspan(first, end - first),
                                             .source_count = source_count_,
                                             .dtype = dtype,
                                             .op = op,
                                             .scale = scale,
                                             .traffic_bytes = execution.node_bytes,
                                             .team = &execution.team};
    SHARDCOMM_TRY(kernels::launch(rows, execution.stream));
  }
  return {};
}

}  // namespace shardcomm
