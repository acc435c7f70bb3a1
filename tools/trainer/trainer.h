// One rank's part of a training run: model, ZeRO engine, optimizer and data, and what can be done with them.
// It is an ordinary user of shardcomm: nothing here knows more of the library than its public headers.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shardcomm/shardcomm.h"
#include "tools/trainer/model.h"
#include "tools/trainer/options.h"
#include "tools/trainer/unit_parameters.h"

namespace shardcomm::trainer {

// One thread; every call is collective. The communicator must outlive it.
class Trainer {
 public:
  // Loads the data, builds the model with its initial weights, or resumes as options say.
  static Result<std::unique_ptr<Trainer>> create(Communicator& comm, const TrainOptions& options);

  Result<StepReport> step();   // one optimizer step
  Result<double> evaluate();   // mean loss over the whole validation text
  Result<std::string> save();  // the directory written
  uint64_t steps_done() const { return steps_done_; }
  bool resumed() const { return resumed_; }

  // Per rank and step: what estimate_zero says, and what loss, token count and gradient norm add.
  const ZeroEstimate& estimate() const { return estimate_; }
  uint64_t small_bytes_per_step() const;
  size_t activation_bytes() const { return model_->activation_bytes(); }
  MemoryReport memory() const { return engine_->memory(); }
  const Data& data() const { return data_; }
  const TrainOptions& options() const { return options_; }
  Communicator& communicator() const { return comm_; }

  // Events of the last step, of this rank.
  const std::vector<TraceEvent>& last_events() const { return last_events_; }

 private:
  Trainer(Communicator& comm, const TrainOptions& options, Data data);
  Status build();
  Status resume();
  Status forward(const Batch& batch);
  Status backward();
  Status micro_batch(const Samples& samples, float gradient_scale);
  Status evaluate_all(std::vector<double>& total);  // sum of losses, tokens
  template <class Body>
  Status uncounted(Body&& body);  // bytes that `body` sends belong to no step
  template <class T>
  Result<std::vector<T>> sum(std::vector<T> values);

  Communicator& comm_;
  TrainOptions options_;
  Data data_;
  std::unique_ptr<Model> model_;
  std::optional<ZeroEngine> engine_;
  std::optional<AdamW> optimizer_;
  ZeroEstimate estimate_;
  UnitParameters parameters_;
  uint64_t steps_done_ = 0;
  uint64_t position_ = 0;  // samples of the training order consumed, by all ranks together
  uint64_t tokens_ = 0;
  bool resumed_ = false;
  uint64_t sent_mark_ = 0;  // bytes sent until the last gradient norm, what else was done since then left out
  int64_t exposed_ns_ = 0;
  std::vector<TraceEvent> last_events_;
};

}  // namespace shardcomm::trainer
