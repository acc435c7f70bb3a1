// What only rank 0 can find out, on every rank.
#pragma once
#include <functional>
#include <string>

#include "shardcomm/communicator.h"

namespace shardcomm::trainer {

// Collective: rank 0 asks; every rank returns its answer, or its error in its words (up to 4 KiB of either), so that
// none goes on where another cannot.
Result<std::string> answer_of_first(Communicator& comm, const std::function<Result<std::string>()>& ask);
Status outcome_of_first(Communicator& comm, const std::function<Status()>& act);

}  // namespace shardcomm::trainer
