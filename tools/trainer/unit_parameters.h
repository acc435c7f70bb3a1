// The bridge between the engine's views, of whatever element type, and the f32 that models compute with. f32 is handed
// through; bf16 is widened into scratch, and gradients are rounded back once the unit has added to them.
#pragma once
#include <span>
#include <vector>

#include "shardcomm/zero.h"
#include "tools/trainer/model.h"

namespace shardcomm::trainer {

class UnitParameters {
 public:
  // Valid until the next open. Views of one unit, between the engine's before and after.
  std::span<const Parameter> open(std::span<const ParameterView> views);
  // After backward: what was added to widened gradients goes back into the views.
  void close(std::span<const ParameterView> views);
  size_t scratch_bytes() const { return scratch_.size() * sizeof(float); }

 private:
  std::vector<Parameter> parameters_;
  std::vector<float> scratch_;
};

}  // namespace shardcomm::trainer
