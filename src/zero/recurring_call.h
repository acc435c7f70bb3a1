// A collective of a unit that comes again in every step, prepared for as long as its memory stays where it is.
#pragma once
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "shardcomm/communicator.h"

namespace shardcomm::zero {

// One thread at a time.
class RecurringCall {
 public:
  // Runs the gather or reduction of `make_items()`. They are made, and the call is prepared, when it is the first one
  // or when `place`, which says where their memory is, differs from that of the one before.
  template <class MakeItems>
  Result<Work> run(Communicator& comm, StreamRef stream, const void* place, std::string_view label,
                   MakeItems&& make_items) {
    if (!call_ || place != place_) {
      call_.reset();
      SHARDCOMM_TRY_ASSIGN(PreparedCall call, prepare(comm, make_items(), label));
      call_ = std::move(call);
      place_ = place;
    }
    return call_->run(stream);
  }

 private:
  static Result<PreparedCall> prepare(Communicator& comm, const std::vector<GatherItem>& items,
                                      std::string_view label) {
    return comm.prepare_gather(items, label);
  }
  static Result<PreparedCall> prepare(Communicator& comm, const std::vector<ReduceItem>& items,
                                      std::string_view label) {
    return comm.prepare_reduce(items, label);
  }
  std::optional<PreparedCall> call_;
  const void* place_ = nullptr;
};

}  // namespace shardcomm::zero
