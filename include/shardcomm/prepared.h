// A PreparedCall is a call of many tensors that is made again and again, as a model's are in every step: its arguments
// are checked and summed up once, and the tables of where its bytes lie, here and at the peers, are kept for as long as
// no window comes or goes. Peers see a plain all_gather_many or reduce_scatter_many with its label, so that one rank
// may prepare what another does not.
//
//   auto call = comm.prepare_gather(items, "gather h.3");
//   for (;;) call->run(stream);
//
// Thread rule: run() as the communicator's own calls; everything else one thread at a time.
#pragma once
#include <chrono>
#include <memory>

#include "shardcomm/status.h"
#include "shardcomm/stream.h"

namespace shardcomm {

// Made by Communicator::prepare_gather and prepare_reduce. May be destroyed before its communicator or after it, and
// while a run of it is still in a stream.
class SHARDCOMM_EXPORT PreparedCall {
 public:
  PreparedCall(PreparedCall&&) noexcept;
  PreparedCall& operator=(PreparedCall&&) noexcept;
  ~PreparedCall();

  // Makes the call: collective, in the order of the communicator's calls. kFailedPrecondition once the communicator has
  // been destroyed.
  Result<Work> run(StreamRef stream, std::chrono::milliseconds timeout = {});  // zero: the communicator's

  struct Impl;

 private:
  friend class Communicator;
  explicit PreparedCall(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardcomm
