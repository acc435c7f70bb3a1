// Everything that one training run is made of. tools/train.cc fills it in from the command line.
#pragma once
#include <cstdint>
#include <string>

#include "shardcomm/optimizer.h"
#include "shardcomm/zero.h"
#include "tools/trainer/config.h"
#include "tools/trainer/data.h"
#include "tools/trainer/learning_rate.h"

namespace shardcomm::trainer {

struct TrainOptions {
  ModelConfig model;
  DataOptions data;  // its seq follows model.seq, its seed follows seed
  ZeroOptions zero;
  AdamWOptions adam;
  LearningRate learning_rate;
  DType dtype = DType::kF32;  // of parameters; the optimizer keeps f32 masters of what is narrower
  size_t batch = 8;           // sequences per rank and micro-batch
  size_t accumulate = 1;      // micro-batches per step
  double clip = 1.0;          // of the global gradient norm; 0: none
  uint64_t seed = 1337;       // of weights and data order
  bool recompute_blocks = false;
  uint64_t eval_every = 0;  // steps; 0: at the end only

  std::string save_dir;     // empty: no checkpoints
  uint64_t save_every = 0;  // steps; 0: at the end only
  int keep = 2;             // complete checkpoints that stay; 0: all
  std::string resume;       // "", "auto" (the newest of save_dir, if any) or a step directory

  std::string log;  // files, written by rank 0; empty: not written
  std::string trace;
  std::string timeline;
};

// What one step came to. Times, bytes and memory are this rank's.
struct StepReport {
  uint64_t step = 0;         // counts from 1
  uint64_t tokens = 0;       // with a target, of all ranks, since step 1
  uint64_t step_tokens = 0;  // of this step
  double loss = 0;           // mean over those of this step
  double learning_rate = 0;
  double gradient_norm = 0;  // before clipping
  double step_ms = 0;
  double tokens_per_second = 0;  // of all ranks
  double comm_ms = 0;            // this rank's collectives ran
  double exposed_comm_ms = 0;    // its computation waited for them
  size_t live_bytes = 0;
  size_t peak_bytes = 0;
  uint64_t bytes_sent = 0;
};

}  // namespace shardcomm::trainer
