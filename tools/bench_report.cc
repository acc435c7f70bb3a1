#include "tools/bench_report.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/trainer/output.h"

namespace shardcomm::tools {
namespace {

std::string op_text(const BenchReport& report) {
  return reduces(report.spec.collective) ? std::string(name(report.spec.op)) : "none";
}

}  // namespace

void print_head(const BenchReport& report) {
  const BenchSpec& spec = report.spec;
  fmt::print("# {}, {} ranks as {}, {}, {}, {} iterations after {}, seed {}\n", name(spec.collective), report.ranks,
             report.threads ? "threads" : "processes", spec.windows ? "windows" : "ordinary memory",
             spec.in_place || spec.collective == Collective::kBroadcast ? "in place" : "out of place", spec.iterations,
             spec.warmup, spec.seed);
  fmt::print("# time_us: of the slowest rank; algbw, busbw: GB/s of the median; wrong: elements over all ranks\n");
  fmt::print("{:>12} {:>12} {:>7} {:>8} {:>12} {:>12} {:>12} {:>9} {:>9} {:>8}\n", "bytes", "count", "dtype", "op",
             "min_us", "median_us", "max_us", "algbw", "busbw", "wrong");
}

void print_row(const BenchReport& report, const BenchRow& row) {
  fmt::print("{:>12} {:>12} {:>7} {:>8} {:>12.2f} {:>12.2f} {:>12.2f} {:>9.3f} {:>9.3f} {:>8}\n", row.bytes, row.count,
             name(report.spec.dtype), op_text(report), row.min_us, row.median_us, row.max_us, row.algbw, row.busbw,
             row.wrong ? std::to_string(*row.wrong) : "-");
  std::fflush(stdout);
}

Status write_json(const BenchReport& report, const std::string& path) {
  const BenchSpec& spec = report.spec;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const BenchRow& row : report.rows) {
    rows.push_back({{"bytes", row.bytes},
                    {"count", row.count},
                    {"dtype", name(spec.dtype)},
                    {"op", op_text(report)},
                    {"time_us", {{"min", row.min_us}, {"median", row.median_us}, {"max", row.max_us}}},
                    {"algbw", row.algbw},
                    {"busbw", row.busbw},
                    {"wrong", row.wrong ? nlohmann::ordered_json(*row.wrong) : nlohmann::ordered_json()}});
  }
  const nlohmann::ordered_json all = {{"collective", name(spec.collective)},
                                      {"ranks", report.ranks},
                                      {"mode", report.threads ? "threads" : "processes"},
                                      {"memory", spec.windows ? "window" : "ordinary"},
                                      {"in_place", spec.in_place},
                                      {"iterations", spec.iterations},
                                      {"warmup", spec.warmup},
                                      {"seed", spec.seed},
                                      {"transports", spec.transports.empty() ? "environment" : spec.transports},
                                      {"results", rows}};
  return trainer::write_file(path, all.dump(2) + "\n");
}

}  // namespace shardcomm::tools
