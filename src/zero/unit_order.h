// In which order units are used: recorded in every step, and expected to come again. A step that deviates loses
// prefetches, never correctness. Not thread-safe.
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "shardcomm/zero.h"

namespace shardcomm::zero {

struct Use {
  UnitId unit;
  Pass pass;
  bool operator==(const Use&) const = default;
};

class UnitOrder {
 public:
  // Until a step has been recorded: the declared order forward, its reverse backward.
  explicit UnitOrder(size_t unit_count);

  void enter(Use use);
  // The use expected `distance` after the next one (0: the next); nothing when the order has been lost or has ended.
  std::optional<Use> ahead(size_t distance) const;
  // The step is over. One without a backward pass (evaluation) says only how the forward pass goes.
  void finish();

 private:
  std::vector<Use> expected_;
  std::vector<Use> recorded_;
  const size_t recorded_limit_;  // passes without finish() are not recorded for ever
  size_t cursor_ = 0;            // of the next expected use
};

}  // namespace shardcomm::zero
