#include "tools/trainer/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tools/trainer/state.h"

namespace shardcomm::trainer {
namespace {

constexpr size_t kTraceEvents = size_t{1} << 16;

template <class T>
constexpr DType dtype_for();
template <>
constexpr DType dtype_for<double>() {
  return DType::kF64;
}
template <>
constexpr DType dtype_for<uint64_t>() {
  return DType::kU64;
}

// Adds the time that a call took to a counter: what the computation waited for communication.
class Exposed {
 public:
  explicit Exposed(int64_t& total) : total_(total), begin_(trace_now_ns()) {}
  ~Exposed() { total_ += trace_now_ns() - begin_; }
  Exposed(const Exposed&) = delete;
  Exposed& operator=(const Exposed&) = delete;

 private:
  int64_t& total_;
  int64_t begin_;
};

double milliseconds(int64_t ns) { return static_cast<double>(ns) / 1e6; }

}  // namespace

Trainer::Trainer(Communicator& comm, const TrainOptions& options, Data data)
    : comm_(comm), options_(options), data_(std::move(data)) {}

Result<std::unique_ptr<Trainer>> Trainer::create(Communicator& comm, const TrainOptions& given) {
  TrainOptions options = given;
  options.data.seq = options.model.seq;
  options.data.seed = options.seed;
  SHARDCOMM_TRY(validate(options.model));
  SHARDCOMM_TRY(validate(options.learning_rate));
  SHARDCOMM_TRY_ASSIGN(Data data, Data::load(options.data, ByteTokenizer()));
  SHARDCOMM_TRY(trace_start(kTraceEvents));
  std::unique_ptr<Trainer> trainer(new Trainer(comm, options, std::move(data)));
  SHARDCOMM_TRY(trainer->build());
  SHARDCOMM_TRY(trainer->resume());
  trainer->sent_mark_ = comm.traffic().bytes_sent;
  return trainer;
}

Status Trainer::build() {
  SHARDCOMM_TRY_ASSIGN(model_, make_model(options_.model, {options_.batch, options_.recompute_blocks}));
  const std::vector<UnitSpec> units = zero_units(model_->units(), options_.dtype);
  SHARDCOMM_TRY_ASSIGN(estimate_, estimate_zero(units, comm_.size(), options_.zero));
  SHARDCOMM_TRY_ASSIGN(engine_, ZeroEngine::create(comm_, units, options_.zero));
  const auto fill = [&](UnitId unit, uint32_t parameter, size_t offset, std::span<float> values) {
    const UnitInfo& info = model_->units()[unit];
    const ParameterInfo& one = info.parameters[parameter];
    fill_initial({options_.seed, full_name(info, one), offset}, one.init, values);
  };
  SHARDCOMM_TRY(engine_->fill_parameters(fill));
  SHARDCOMM_TRY_ASSIGN(optimizer_, AdamW::create(*engine_, options_.adam));
  return {};
}

template <class T>
Result<std::vector<T>> Trainer::sum(std::vector<T> values) {
  const Exposed waiting(exposed_ns_);
  const AllReduceArgs args{values.data(), values.data(), values.size(), dtype_for<T>()};
  SHARDCOMM_TRY(comm_.all_reduce(args, StreamRef::caller()).status());
  return values;
}

Status Trainer::forward(const Batch& batch) {
  SHARDCOMM_TRY(model_->begin(batch));
  const auto units = static_cast<UnitId>(model_->units().size());
  for (UnitId unit = 0; unit < units; ++unit) {
    {
      const Exposed waiting(exposed_ns_);
      SHARDCOMM_TRY(engine_->before(unit, Pass::kForward, StreamRef::caller()));
    }
    SHARDCOMM_TRY(model_->forward(unit, parameters_.open(engine_->parameters(unit))));
    SHARDCOMM_TRY(engine_->after(unit, Pass::kForward, StreamRef::caller()));
  }
  return {};
}

Status Trainer::backward() {
  for (auto unit = static_cast<UnitId>(model_->units().size()); unit-- > 0;) {
    {
      const Exposed waiting(exposed_ns_);
      SHARDCOMM_TRY(engine_->before(unit, Pass::kBackward, StreamRef::caller()));
    }
    const auto views = engine_->parameters(unit);
    SHARDCOMM_TRY(model_->backward(unit, parameters_.open(views)));
    parameters_.close(views);
    SHARDCOMM_TRY(engine_->after(unit, Pass::kBackward, StreamRef::caller()));
  }
  return {};
}

Status Trainer::micro_batch(const Samples& samples, float gradient_scale) {
  const Batch batch{options_.batch, options_.model.seq, samples.tokens, samples.targets, gradient_scale};
  SHARDCOMM_TRY(forward(batch));
  SHARDCOMM_TRY(backward());
  const Exposed waiting(exposed_ns_);
  return engine_->finish_step(StreamRef::caller());
}

// Gradients are of Σ token losses / Σ valid tokens over ranks and micro-batches, so a rank's share of the tokens is its
// share of the step. Stages 0 and 1 hold whole gradients anyway and reduce them once a step; stages 2 and 3 reduce each
// micro-batch into the shards.
Result<StepReport> Trainer::step() {
  const int64_t begin = trace_now_ns();
  exposed_ns_ = 0;
  const auto ranks = static_cast<uint64_t>(comm_.size());
  const uint64_t round = options_.batch * ranks;  // samples of one micro-batch of all ranks

  std::vector<Samples> micro_batches(options_.accumulate);
  uint64_t valid = 0;
  for (size_t m = 0; m < micro_batches.size(); ++m) {
    const uint64_t first = position_ + m * round + static_cast<uint64_t>(comm_.rank()) * options_.batch;
    data_.train(first, options_.batch, &micro_batches[m]);
    for (const int32_t target : micro_batches[m].targets) valid += target >= 0;
  }
  SHARDCOMM_TRY_ASSIGN(const auto all_valid, sum<uint64_t>({valid}));
  const double scale = all_valid[0] == 0 ? 0.0 : 1.0 / static_cast<double>(all_valid[0]);

  double loss_sum = 0;
  for (size_t m = 0; m < micro_batches.size(); ++m) {
    engine_->set_gradient_sync(options_.zero.stage >= 2 || m + 1 == micro_batches.size());
    SHARDCOMM_TRY(micro_batch(micro_batches[m], static_cast<float>(scale)));
    loss_sum += model_->loss().sum;
  }
  SHARDCOMM_TRY_ASSIGN(const auto all_loss, sum<double>({loss_sum}));
  const double learning = options_.learning_rate.at(steps_done_);
  double norm = 0;
  {
    const Exposed waiting(exposed_ns_);
    SHARDCOMM_TRY_ASSIGN(norm, engine_->gradient_norm());
  }
  // The norm has waited for everything in flight, so here every step has sent all it sends but the new parameters,
  // which are counted with the next.
  const uint64_t sent = comm_.traffic().bytes_sent;
  const uint64_t step_bytes = sent - std::exchange(sent_mark_, sent);
  const double loss = all_loss[0] * scale;
  if (!std::isfinite(loss) || !std::isfinite(norm)) {
    return Status(Code::kFailedPrecondition,
                  fmt::format("step {}: the loss is {} and the gradient norm {}: training has diverged",
                              steps_done_ + 1, loss, norm));
  }
  const double shrink = options_.clip > 0 && norm > options_.clip ? options_.clip / norm : 1.0;
  SHARDCOMM_TRY(optimizer_->step(static_cast<float>(learning), static_cast<float>(shrink)));

  ++steps_done_;
  position_ += round * options_.accumulate;
  tokens_ += all_valid[0];
  last_events_ = trace_take();
  int64_t comm_ns = 0;
  for (const TraceEvent& event : last_events_) {
    if (event.lane == Lane::kGather || event.lane == Lane::kReduce) comm_ns += event.end_ns - event.begin_ns;
  }
  const MemoryReport memory = engine_->memory();
  const int64_t step_ns = trace_now_ns() - begin;
  return StepReport{.step = steps_done_,
                    .tokens = tokens_,
                    .step_tokens = all_valid[0],
                    .loss = loss,
                    .learning_rate = learning,
                    .gradient_norm = norm,
                    .step_ms = milliseconds(step_ns),
                    .tokens_per_second = static_cast<double>(all_valid[0]) / (static_cast<double>(step_ns) / 1e9),
                    .comm_ms = milliseconds(comm_ns),
                    .exposed_comm_ms = milliseconds(exposed_ns_),
                    .live_bytes = memory.live_bytes,
                    .peak_bytes = memory.peak_bytes,
                    .bytes_sent = step_bytes};
}

template <class Body>
Status Trainer::uncounted(Body&& body) {
  // The new parameters still on their way belong to the step before.
  SHARDCOMM_TRY(engine_->synchronize(std::chrono::steady_clock::now() + comm_.options().timeout));
  const uint64_t pending = comm_.traffic().bytes_sent - sent_mark_;
  SHARDCOMM_TRY(body());
  sent_mark_ = comm_.traffic().bytes_sent - pending;
  (void)trace_take();
  return {};
}

Result<double> Trainer::evaluate() {
  std::vector<double> total{0, 0};
  SHARDCOMM_TRY(uncounted([&] { return evaluate_all(total); }));
  return total[1] == 0 ? 0.0 : total[0] / total[1];
}

// Every rank takes the same number of rounds, also where it has nothing left to read: the units are gathered together.
Status Trainer::evaluate_all(std::vector<double>& total) {
  const auto ranks = static_cast<uint64_t>(comm_.size());
  const uint64_t samples = data_.validation_samples();
  const uint64_t round = options_.batch * ranks;
  Samples mine;
  for (uint64_t first = 0; first < samples; first += round) {
    const uint64_t from = std::min(samples, first + static_cast<uint64_t>(comm_.rank()) * options_.batch);
    const auto count = static_cast<size_t>(std::min<uint64_t>(options_.batch, samples - from));
    data_.validation(from, count, &mine);
    SHARDCOMM_TRY(forward(Batch{count, options_.model.seq, mine.tokens, mine.targets, 1}));
    total[0] += model_->loss().sum;
    total[1] += static_cast<double>(model_->loss().tokens);
    SHARDCOMM_TRY(engine_->finish_step(StreamRef::caller()));
  }
  SHARDCOMM_TRY_ASSIGN(total, sum<double>(std::move(total)));
  return {};
}

// Operands of small all-reduces are shown whole to every peer: token count (u64), loss (f64), and the norm's largest
// magnitude (u32) and square sum (4 u64).
uint64_t Trainer::small_bytes_per_step() const {
  return static_cast<uint64_t>(comm_.size() - 1) *
         (sizeof(uint64_t) + sizeof(double) + sizeof(uint32_t) + 4 * sizeof(uint64_t));
}

Result<std::string> Trainer::save() {
  const RunState state{options_.model, options_.seed, data_.train_tokens(), position_, tokens_};
  std::string written;
  SHARDCOMM_TRY(uncounted([&]() -> Status {
    SHARDCOMM_TRY_ASSIGN(written, save_checkpoint(*engine_, *optimizer_, options_.save_dir, steps_done_,
                                                  state_text(state), options_.keep));
    return {};
  }));
  return written;
}

}  // namespace shardcomm::trainer
