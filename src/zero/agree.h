// Decisions that all ranks take together. Collective; every rank must call in the same order.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/communicator.h"

namespace shardcomm::zero {

// From now, by the communicator's timeout for one operation.
Deadline operation_deadline(const Communicator& comm);
// The work has ended, well or not.
Status finish(Result<Work> work, const Communicator& comm);

// Success if every rank brings success; else the failure of the lowest failing rank, "rank 2: …", on all of them.
Status agree(Communicator& comm, const Status& mine);

struct Field {
  std::string_view name;
  uint64_t value;
};
// kFailedPrecondition names the first field whose value is not the same on all ranks, and two that differ.
Status agree_on(Communicator& comm, std::span<const Field> fields, std::string_view what);

// Every rank's text, in rank order, on all ranks.
Result<std::vector<std::string>> exchange_texts(Communicator& comm, std::string_view mine);

}  // namespace shardcomm::zero
