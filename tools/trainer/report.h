// What a run tells: one JSON object a step to the log, a progress line, and a summary at the end. Rank 0 only.
#pragma once
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "shardcomm/status.h"
#include "tools/trainer/options.h"

namespace shardcomm::trainer {

// The log's line for one step: the keys of the command's documentation, val_loss only where it was evaluated, mfu null
// because a host's peak is not known.
std::string log_line(const StepReport& report, std::optional<double> validation_loss);

// Appends lines to a file as they come. One thread.
class StepLog {
 public:
  // Truncates the file unless the run resumes another after step `resumed_at`: then lines of later steps, which that
  // one still wrote, go, and so does a last line that it did not finish. An empty path: a log that writes nothing.
  static Result<StepLog> open(const std::string& path, std::optional<uint64_t> resumed_at);
  Status write(const StepReport& report, std::optional<double> validation_loss);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

// One line that renews itself on a terminal; elsewhere a plain line now and then.
class Progress {
 public:
  explicit Progress(uint64_t steps);
  void show(const StepReport& report, std::optional<double> validation_loss);
  void finish();  // leaves the last line standing

 private:
  uint64_t steps_;
  bool terminal_;
  int64_t last_shown_ns_ = 0;
};

// What the whole run came to, over all ranks.
struct RunSummary {
  int ranks = 1;
  int stage = 3;
  uint64_t steps = 0;   // of this process, a resumed run's earlier ones not counted
  uint64_t tokens = 0;  // likewise
  double seconds = 0;   // in steps, evaluation and checkpoints not counted
  double first_loss = 0, last_loss = 0;
  std::optional<double> validation_loss;
  size_t parameter_count = 0;
  size_t peak_bytes = 0, estimated_peak_bytes = 0;  // the largest rank
  size_t activation_bytes = 0;
  double bytes_per_step = 0;  // sent by a rank, mean over steps but the first; the largest rank
  uint64_t formula_bytes = 0, small_bytes = 0;
  std::string formula;
};
void print_summary(const RunSummary& summary);

}  // namespace shardcomm::trainer
