#include "tools/trainer/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "tools/trainer/agree.h"
#include "tools/trainer/output.h"
#include "tools/trainer/report.h"
#include "tools/trainer/state.h"
#include "tools/trainer/timeline.h"
#include "tools/trainer/trainer.h"

namespace shardcomm::trainer {
namespace {

constexpr size_t kTracedSteps = 50;  // the newest steps that --trace keeps

class Run {
 public:
  Run(Trainer& trainer, Communicator& comm) : trainer_(trainer), comm_(comm), options_(trainer.options()) {}

  // What could not be written at the end is found out before the first step, by all ranks.
  Status begin() {
    SHARDCOMM_TRY(outcome_of_first(comm_, [&] { return open_outputs(); }));
    if (!is_first()) return {};
    fmt::print(
        "{}: {} parameters, {} ranks, stage {}, global batch {} x {} tokens; {} training and {} validation tokens\n",
        describe(options_.model), trainer_.estimate().parameter_count, comm_.size(), options_.zero.stage,
        options_.batch * options_.accumulate * static_cast<size_t>(comm_.size()), options_.model.seq,
        trainer_.data().train_tokens(), trainer_.data().validation_tokens());
    if (trainer_.resumed()) fmt::print("resumed at step {}\n", trainer_.steps_done());
    return {};
  }

  Status steps() {
    const uint64_t last = options_.learning_rate.steps;
    Progress progress(last);
    while (trainer_.steps_done() < last) {
      SHARDCOMM_TRY_ASSIGN(const StepReport report, trainer_.step());
      note(report);
      const bool evaluate = report.step == last || (options_.eval_every != 0 && report.step % options_.eval_every == 0);
      std::optional<double> validation;
      if (evaluate && trainer_.data().validation_samples() > 0) {
        SHARDCOMM_TRY_ASSIGN(validation, trainer_.evaluate());
        summary_.validation_loss = validation;
      }
      if (is_first()) {
        SHARDCOMM_TRY(write_log(report, validation));
        progress.show(report, validation);
      }
      const bool save = report.step == last || (options_.save_every != 0 && report.step % options_.save_every == 0);
      if (save && !options_.save_dir.empty()) {
        SHARDCOMM_TRY_ASSIGN(checkpoint_, trainer_.save());
      }
    }
    if (is_first()) progress.finish();
    return {};
  }

  // Everything that is known only when all steps are done.
  Status end() {
    if (summary_.steps == 0) {
      if (is_first())
        fmt::print("nothing to do: step {} of {} is done\n", trainer_.steps_done(), options_.learning_rate.steps);
      return {};
    }
    SHARDCOMM_TRY(complete_summary());
    if (is_first()) print_summary(summary_);
    SHARDCOMM_TRY(write_pictures());
    if (!is_first()) return {};
    const std::pair<std::string_view, const std::string&> written[] = {
        {"checkpoint", checkpoint_}, {"log", options_.log}, {"timeline", options_.timeline}, {"trace", options_.trace}};
    for (const auto& [what, path] : written) {
      if (!path.empty()) fmt::print("{:<9} {}\n", what, path);
    }
    return {};
  }

 private:
  bool is_first() const { return comm_.rank() == 0; }

  Status open_outputs() {
    for (const std::string& file : {options_.log, options_.trace, options_.timeline})
      SHARDCOMM_TRY(check_output_file(file));
    SHARDCOMM_TRY(check_output_directory(options_.save_dir));
    const uint64_t done = trainer_.steps_done();
    SHARDCOMM_TRY_ASSIGN(log_, StepLog::open(options_.log, trainer_.resumed() ? std::optional(done) : std::nullopt));
    return {};
  }

  // The other ranks are in the next step when this fails.
  Status write_log(const StepReport& report, std::optional<double> validation) {
    const Status written = log_->write(report, validation);
    if (!written.ok()) comm_.abort(written.message());
    return written;
  }

  void note(const StepReport& report) {
    if (summary_.steps == 0) {
      summary_.first_loss = report.loss;
    } else {
      bytes_after_first_ += static_cast<double>(report.bytes_sent);
    }
    ++summary_.steps;
    summary_.tokens += report.step_tokens;
    summary_.seconds += report.step_ms / 1e3;
    summary_.last_loss = report.loss;
    if (options_.trace.empty()) return;
    traced_.push_back(trainer_.last_events());
    if (traced_.size() > kTracedSteps) traced_.pop_front();
  }

  Status complete_summary() {
    uint64_t largest[2] = {
        trainer_.memory().peak_bytes,
        static_cast<uint64_t>(summary_.steps < 2 ? 0
                                                 : bytes_after_first_ / static_cast<double>(summary_.steps - 1) + 0.5)};
    SHARDCOMM_TRY(
        comm_.all_reduce({largest, largest, 2, DType::kU64, ReduceOp::kMax, "summary"}, StreamRef::caller()).status());
    summary_.ranks = comm_.size();
    summary_.stage = options_.zero.stage;
    summary_.parameter_count = trainer_.estimate().parameter_count;
    summary_.peak_bytes = largest[0];
    summary_.estimated_peak_bytes = trainer_.estimate().peak_bytes;
    summary_.activation_bytes = trainer_.activation_bytes();
    summary_.bytes_per_step = static_cast<double>(largest[1]);
    summary_.formula_bytes = trainer_.estimate().bytes_per_step;
    summary_.small_bytes = trainer_.small_bytes_per_step();
    summary_.formula = trainer_.estimate().formula;
    return {};
  }

  Status write_pictures() {
    if (!options_.timeline.empty()) {
      SHARDCOMM_TRY_ASSIGN(const auto events, collect_events(comm_, trainer_.last_events()));
      const std::string title =
          fmt::format("step {} of {}: stage {}, {} ranks, prefetch {}", trainer_.steps_done(), describe(options_.model),
                      options_.zero.stage, comm_.size(), options_.zero.prefetch_units);
      SHARDCOMM_TRY(
          outcome_of_first(comm_, [&] { return write_file(options_.timeline, timeline_svg(events, title)); }));
    }
    if (options_.trace.empty()) return {};
    std::vector<TraceEvent> mine;
    for (const auto& step : traced_) mine.insert(mine.end(), step.begin(), step.end());
    SHARDCOMM_TRY_ASSIGN(const auto events, collect_events(comm_, mine));
    return outcome_of_first(comm_, [&] { return write_file(options_.trace, trace_to_json(events)); });
  }

  Trainer& trainer_;
  Communicator& comm_;
  const TrainOptions& options_;
  std::optional<StepLog> log_;
  RunSummary summary_;
  double bytes_after_first_ = 0;
  std::string checkpoint_;
  std::deque<std::vector<TraceEvent>> traced_;
};

}  // namespace

Status train(Communicator& comm, const TrainOptions& options) {
  SHARDCOMM_TRY_ASSIGN(const auto trainer, Trainer::create(comm, options));
  Run run(*trainer, comm);
  SHARDCOMM_TRY(run.begin());
  SHARDCOMM_TRY(run.steps());
  return run.end();
}

}  // namespace shardcomm::trainer
