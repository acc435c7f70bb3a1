// The training loop: steps, evaluation, checkpoints, the log, and the pictures at the end.
#pragma once
#include "shardcomm/communicator.h"
#include "tools/trainer/options.h"

namespace shardcomm::trainer {

// Collective. Trains up to options.learning_rate.steps and prints, on rank 0, what became of it.
Status train(Communicator& comm, const TrainOptions& options);

}  // namespace shardcomm::trainer
