#include "zero/unit_order.h"

#include <algorithm>

namespace shardcomm::zero {
namespace {

bool has_backward(const std::vector<Use>& uses) {
  return std::any_of(uses.begin(), uses.end(), [](const Use& use) { return use.pass == Pass::kBackward; });
}

std::vector<Use> with_reversed_backward(std::vector<Use> forward) {
  for (size_t i = forward.size(); i-- > 0;) forward.push_back({forward[i].unit, Pass::kBackward});
  return forward;
}

}  // namespace

UnitOrder::UnitOrder(size_t unit_count) : recorded_limit_(64 * (unit_count + 1)) {
  std::vector<Use> forward;
  for (size_t i = 0; i < unit_count; ++i) forward.push_back({static_cast<UnitId>(i), Pass::kForward});
  expected_ = with_reversed_backward(std::move(forward));
}

void UnitOrder::enter(Use use) {
  if (cursor_ < expected_.size() && expected_[cursor_] == use) {
    ++cursor_;
  } else {
    const auto begin = expected_.begin();
    const auto here = begin + static_cast<ptrdiff_t>(std::min(cursor_, expected_.size()));
    auto found = std::find(here, expected_.end(), use);
    if (found == expected_.end()) {
      found = std::find(begin, here, use);
      if (found == here) found = expected_.end();
    }
    cursor_ = found == expected_.end() ? expected_.size() : static_cast<size_t>(found - begin) + 1;
  }
  if (recorded_.size() < recorded_limit_) recorded_.push_back(use);
}

std::optional<Use> UnitOrder::ahead(size_t distance) const {
  if (distance >= expected_.size() - std::min(cursor_, expected_.size())) return std::nullopt;
  return expected_[cursor_ + distance];
}

void UnitOrder::finish() {
  if (recorded_.size() == recorded_limit_) {
    // Cut off: it says nothing about where it ends.
  } else if (has_backward(recorded_)) {
    expected_ = std::move(recorded_);
  } else if (!std::equal(recorded_.begin(), recorded_.end(), expected_.begin(),
                         expected_.begin() + static_cast<ptrdiff_t>(std::min(recorded_.size(), expected_.size())))) {
    expected_ = with_reversed_backward(std::move(recorded_));
  }
  recorded_.clear();
  cursor_ = 0;
}

}  // namespace shardcomm::zero
