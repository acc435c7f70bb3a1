#include "tools/trainer/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "shardcomm/trace.h"
#include "tools/trainer/output.h"

namespace shardcomm::trainer {
namespace {

constexpr int64_t kTerminalPeriodNs = 100'000'000;
constexpr int64_t kPlainPeriodNs = 5'000'000'000;

double mebibytes(double bytes) { return bytes / (1 << 20); }

double percent_off(double value, double reference) {
  return reference == 0 ? 0 : 100 * (value - reference) / reference;
}

bool is_of_step_after(const std::string& line, uint64_t step) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return false;
  const auto found = json.find("step");
  return found != json.end() && found->is_number_unsigned() && found->get<uint64_t>() > step;
}

Status drop_steps_after(const std::string& path, uint64_t step) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  std::ifstream file(path);
  if (!file) return Status::native(Origin::kErrno, errno, fmt::format("open log '{}'", path));
  std::string kept;
  bool all = true;
  for (std::string line; std::getline(file, line);) {
    const bool keep = !file.eof() && !is_of_step_after(line, step);  // at eof: without its newline
    if (keep) (kept += line) += '\n';
    all = all && keep;
  }
  return all ? Status() : write_file(path, kept);
}

}  // namespace

std::string log_line(const StepReport& report, std::optional<double> validation_loss) {
  nlohmann::ordered_json json = {{"step", report.step}, {"tokens", report.tokens}, {"loss", report.loss}};
  if (validation_loss) json["val_loss"] = *validation_loss;
  json["lr"] = report.learning_rate;
  json["grad_norm"] = report.gradient_norm;
  json["dt_ms"] = report.step_ms;
  json["tok_s"] = report.tokens_per_second;
  json["mfu"] = nullptr;
  json["comm_ms"] = report.comm_ms;
  json["exposed_comm_ms"] = report.exposed_comm_ms;
  json["live_bytes"] = report.live_bytes;
  json["peak_bytes"] = report.peak_bytes;
  json["bytes_sent"] = report.bytes_sent;
  return json.dump();
}

Result<StepLog> StepLog::open(const std::string& path, std::optional<uint64_t> resumed_at) {
  StepLog log;
  if (path.empty()) return log;
  log.path_ = path;
  if (resumed_at) SHARDCOMM_TRY(drop_steps_after(path, *resumed_at));
  log.file_.reset(std::fopen(path.c_str(), resumed_at ? "a" : "w"));
  if (log.file_ == nullptr) return Status::native(Origin::kErrno, errno, fmt::format("open log '{}'", path));
  return log;
}

Status StepLog::write(const StepReport& report, std::optional<double> validation_loss) {
  if (file_ == nullptr) return {};
  const std::string line = log_line(report, validation_loss) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() && std::fflush(file_.get()) == 0) return {};
  return Status::native(Origin::kErrno, errno, fmt::format("write log '{}'", path_));
}

Progress::Progress(uint64_t steps) : steps_(steps), terminal_(isatty(STDOUT_FILENO) == 1) {}

void Progress::show(const StepReport& report, std::optional<double> validation_loss) {
  const int64_t now = trace_now_ns();
  const bool due = now - last_shown_ns_ >= (terminal_ ? kTerminalPeriodNs : kPlainPeriodNs);
  if (!due && report.step != steps_ && !validation_loss) return;
  last_shown_ns_ = now;
  std::string text = fmt::format(
      "step {:>{}}/{}  loss {:.4f}  lr {:.2e}  grad_norm {:.3f}  {:.0f} tokens/s  comm {:.1f} ms ({:.1f} exposed)",
      report.step, fmt::formatted_size("{}", steps_), steps_, report.loss, report.learning_rate, report.gradient_norm,
      report.tokens_per_second, report.comm_ms, report.exposed_comm_ms);
  if (validation_loss) text += fmt::format("  val_loss {:.4f}", *validation_loss);
  if (terminal_ && !validation_loss) {
    fmt::print("\r{}\033[K", text);
  } else {
    fmt::print("{}{}\n", terminal_ ? "\r\033[K" : "", text);
  }
  std::fflush(stdout);
}

void Progress::finish() {
  if (terminal_) fmt::print("\n");
}

void print_summary(const RunSummary& summary) {
  fmt::print("\n{} steps, {} tokens in {:.1f} s: {:.0f} tokens/s with {} rank{}, stage {}, {} parameters\n",
             summary.steps, summary.tokens, summary.seconds, static_cast<double>(summary.tokens) / summary.seconds,
             summary.ranks, summary.ranks == 1 ? "" : "s", summary.stage, summary.parameter_count);
  fmt::print("loss      {:.4f} -> {:.4f}", summary.first_loss, summary.last_loss);
  if (summary.validation_loss) fmt::print(", validation {:.4f}", *summary.validation_loss);
  fmt::print("\n");
  fmt::print("memory    peak {} bytes per rank ({:.2f} MiB), estimate {} ({:+.2f} %); activations {:.1f} MiB besides\n",
             summary.peak_bytes, mebibytes(static_cast<double>(summary.peak_bytes)), summary.estimated_peak_bytes,
             percent_off(static_cast<double>(summary.peak_bytes), static_cast<double>(summary.estimated_peak_bytes)),
             mebibytes(static_cast<double>(summary.activation_bytes)));
  const uint64_t expected = summary.formula_bytes + summary.small_bytes;
  fmt::print(
      "traffic   {:.0f} bytes sent per rank and step, formula {} = {} + {} for loss, token count and norm ({:+.2f} "
      "%)\n",
      summary.bytes_per_step, expected, summary.formula_bytes, summary.small_bytes,
      percent_off(summary.bytes_per_step, static_cast<double>(expected)));
  fmt::print("          {}\n", summary.formula);
}

}  // namespace shardcomm::trainer
