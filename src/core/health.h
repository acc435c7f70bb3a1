// The failure of one communicator: the first that any rank meets is that of all ranks, and each records it.
#pragma once
#include "base/birthplace.h"
#include "flight/flight.h"
#include "transport/transport.h"

namespace shardcomm {

// Any thread.
class Health {
 public:
  // Both outlive this.
  Health(Control& control, FlightRecorder& flight, Rank rank) noexcept
      : control_(control), flight_(flight), rank_(rank) {}

  Status here() const;     // kFailedPrecondition in a forked child, which has no place among the ranks
  Status failure() const;  // the communicator's, and records it; ok while there is none
  // Makes `why` the failure of all ranks, unless there is one already.
  void abort(const Status& why) const noexcept;
  Status check() const;  // also looks for peers that have ended

 private:
  Control& control_;
  FlightRecorder& flight_;
  const Rank rank_;
  const Birthplace birthplace_;
};

}  // namespace shardcomm
