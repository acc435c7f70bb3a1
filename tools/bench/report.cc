#include "tools/bench/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/bench/timing.h"
#include "tools/bytes.h"

namespace shardcomm::tools {
namespace {

using Json = nlohmann::ordered_json;

std::string op_text(const BenchReport& report) {
  return reduces(report.setup.spec.collective) ? std::string(name(report.setup.spec.op)) : "none";
}

std::string buffers_text(const BenchSpec& spec) {
  if (spec.memory == BenchMemory::kMosaic) return "mosaic windows, read where they lie";
  std::string_view kind = "ordinary memory";
  if (spec.memory == BenchMemory::kWindow) kind = "windows";
  if (spec.memory == BenchMemory::kPool) kind = "pools";
  return fmt::format("{}, {}", kind, is_in_place(spec) ? "in place" : "out of place");
}

int ranks_of(const BenchReport& report) { return static_cast<int>(report.setup.places.of_ranks.size()); }

std::string text_of(const std::optional<double>& value, std::string_view unit) {
  return value ? fmt::format("{:.3g} {}", *value, unit) : "unknown";
}

std::string places_text(const BenchSetup& setup) {
  const std::string cores = fmt::format("{}", fmt::join(setup.places.to_text(), " "));
  const std::string over = setup.places.oversubscribed() ? "; more ranks than cores" : "";
  return fmt::format("{} {}{}", setup.spec.bind ? "each bound to core" : "not bound, may run on cores", cores, over);
}

void print_limits(const BenchReport& report) {
  const BenchSetup& setup = report.setup;
  if (!setup.limits) {
    if (!setup.no_limits.empty()) fmt::print("# limits: none: {}\n", setup.no_limits);
    return;
  }
  fmt::print("# limits of each rank with all at once, out of cache ({}): copy {}, read {} write one {} written, ",
             bytes_text(setup.limits->bytes), text_of(setup.limits->copy_gb_s, "GB/s"), ranks_of(report),
             text_of(setup.limits->read_write_gb_s, "GB/s"));
  fmt::print("cache line one way {}\n", text_of(setup.limits->one_way_us, "us"));
  fmt::print("# limit_us: the least time for the row on this machine at its size; %limit: limit_us of median_us\n");
}

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json json_of(const BenchReport& report, const BenchRow& row) {
  const Statistics& time = row.time_us;
  Json limit;
  if (row.limit) {
    limit = {
        {"kind", row.limit->kind}, {"us", row.limit->us}, {"busbw", row.limit->busbw}, {"percent", row.limit->percent}};
  }
  Json many;
  if (row.many) {
    many = {{"first_us", row.many->first_us}, {"plain_us", row.many->plain_us}, {"as_one_us", row.many->as_one_us}};
  }
  return {{"bytes", row.bytes},
          {"count", row.count},
          {"dtype", name(report.setup.spec.dtype)},
          {"op", op_text(report)},
          {"time_us",
           {{"min", time.min},
            {"median", time.median},
            {"max", time.max},
            {"mean", time.mean},
            {"p50", time.median},
            {"p90", time.p90},
            {"p99", time.p99}}},
          {"samples", row.samples},
          {"batch", row.batch},
          {"algbw", row.algbw},
          {"busbw", row.busbw},
          {"wrong", row.wrong ? Json(*row.wrong) : Json()},
          {"limit", limit},
          {"many", many}};
}

}  // namespace

void print_head(const BenchReport& report) {
  const BenchSpec& spec = report.setup.spec;
  const std::string samples =
      spec.iterations > 0 ? std::to_string(spec.iterations) : fmt::format("{} to {}", kLeastSamples, kMostSamples);
  fmt::print("# {}, {} ranks as {}, {}, {} iterations after {}, seed {}\n", name_of_bench(spec), ranks_of(report),
             report.threads ? "threads" : "processes", buffers_text(spec), samples, spec.warmup, spec.seed);
  fmt::print("# ranks: {}\n", places_text(report.setup));
  print_limits(report);
  fmt::print("# time_us: of the slowest rank; algbw, busbw: GB/s of the median; wrong: elements over all ranks\n");
  if (spec.memory == BenchMemory::kMosaic)
    fmt::print(
        "# a mosaic's bytes stay where they are until they are read: algbw counts all that it shows, busbw is 0\n");
  fmt::print("{:>12} {:>12} {:>7} {:>8} {:>12} {:>12} {:>12} {:>10} {:>9} {:>8} {:>12} {:>7}", "bytes", "count",
             "dtype", "op", "min_us", "median_us", "max_us", "algbw", "busbw", "wrong", "limit_us", "%limit");
  if (report.percentiles) fmt::print(" {:>12} {:>12} {:>12}", "p50_us", "p90_us", "p99_us");
  fmt::print("\n");
  std::fflush(stdout);
}

void print_row(const BenchReport& report, const BenchRow& row) {
  const Statistics& time = row.time_us;
  fmt::print("{:>12} {:>12} {:>7} {:>8} {:>12.2f} {:>12.2f} {:>12.2f} {:>10.3f} {:>9.3f} {:>8}", row.bytes, row.count,
             name(report.setup.spec.dtype), op_text(report), time.min, time.median, time.max, row.algbw, row.busbw,
             row.wrong ? std::to_string(*row.wrong) : "-");
  if (row.limit)
    fmt::print(" {:>12.2f} {:>7.1f}", row.limit->us, row.limit->percent);
  else
    fmt::print(" {:>12} {:>7}", "-", "-");
  if (report.percentiles) fmt::print(" {:>12.2f} {:>12.2f} {:>12.2f}", time.median, time.p90, time.p99);
  fmt::print("\n");
  if (row.many) {
    fmt::print(
        "#   above: the prepared call; its first run {:.2f} us, a plain call {:.2f} us, one tensor of the bytes {:.2f} "
        "us\n",
        row.many->first_us, row.many->plain_us, row.many->as_one_us);
  }
  std::fflush(stdout);
}

std::string to_json(const BenchReport& report) {
  const BenchSetup& setup = report.setup;
  const BenchSpec& spec = setup.spec;
  Json rows = Json::array();
  for (const BenchRow& row : report.rows) rows.push_back(json_of(report, row));
  Json limits;
  if (setup.limits) {
    limits = {{"bytes", setup.limits->bytes},
              {"copy_gb_s", json_of(setup.limits->copy_gb_s)},
              {"read_write_gb_s", json_of(setup.limits->read_write_gb_s)},
              {"sources", ranks_of(report)},
              {"one_way_us", json_of(setup.limits->one_way_us)}};
  }
  const Json all = {{"program", "shardcomm"},
                    {"collective", name_of_bench(spec)},
                    {"ranks", ranks_of(report)},
                    {"mode", report.threads ? "threads" : "processes"},
                    {"memory", name(spec.memory)},
                    {"in_place", is_in_place(spec)},
                    {"iterations", spec.iterations},
                    {"warmup", spec.warmup},
                    {"seed", spec.seed},
                    {"transports", spec.transports.empty() ? "environment" : spec.transports},
                    {"offset", spec.offset_bytes},
                    {"extra", spec.extra_bytes},
                    {"items", spec.items},
                    {"skew", spec.skew},
                    {"bound", spec.bind},
                    {"cores", setup.places.to_text()},
                    {"oversubscribed", setup.places.oversubscribed()},
                    {"timing", "samples of `batch` calls back to back, divided by batch; the slowest rank of each"},
                    {"limits", limits},
                    {"results", rows}};
  return all.dump(2) + "\n";
}

}  // namespace shardcomm::tools
