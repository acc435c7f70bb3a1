// shardcomm bench: what it says besides times: limits of the machine, percentiles, cores, drawings, the machine's
// model.
#include <algorithm>
#include <cmath>
#include <set>
#include <thread>

#include "shardcomm/plan.h"
#include "tests/command/child.h"
#include "tests/command/xml.h"

namespace shardcomm::testing {
namespace {

using Json = nlohmann::json;

struct Benched {
  CommandResult result;
  Json json;
};

Benched bench(Words arguments, const std::vector<std::string>& environment = {}) {
  const TestDirectory directory;
  arguments.insert(arguments.begin(), "bench");
  arguments.insert(arguments.end(), {"--json", directory / "bench.json"});
  Benched run{run_command(CommandSpec{.arguments = arguments, .environment = environment}), {}};
  EXPECT_TRUE(succeeded(run.result));
  run.json = parse_json(read_text(directory / "bench.json"));
  return run;
}

void expect_positive(const Json& number, const char* what) {
  ASSERT_TRUE(number.is_number()) << what << " is " << number;
  EXPECT_TRUE(std::isfinite(number.get<double>())) << what;
  EXPECT_GT(number.get<double>(), 0) << what;
}

void expect_limit(const Json& row, const std::vector<std::string>& kinds) {
  SCOPED_TRACE(row.dump());
  const Json& limit = row["limit"];
  ASSERT_TRUE(limit.is_object());
  EXPECT_NE(std::find(kinds.begin(), kinds.end(), limit["kind"]), kinds.end());
  for (const char* key : {"us", "percent"}) expect_positive(limit[key], key);
  const double us = limit["us"], median = row["time_us"]["median"], percent = limit["percent"];
  EXPECT_NEAR(percent, 100 * us / median, 1e-6 * percent);
  if (row["bytes"] != 0) {
    const double busbw = limit["busbw"], of_row = row["busbw"];
    EXPECT_NEAR(busbw * us, of_row * median, 1e-6 * of_row * median);
  }
}

TEST(BenchResults, HaveTheMachinesLimits) {
  struct Case {
    Words arguments;
    std::vector<std::string> kinds;
  };
  const Case cases[] = {{{"all_gather", "--in-place"}, {"one_way", "copy"}},
                        {{"reduce_scatter", "--dtype", "bf16"}, {"one_way", "read_write"}},
                        {{"all_reduce", "--threads"}, {"one_way", "read_write_copy"}},
                        {{"broadcast", "--memory", "ordinary"}, {"one_way", "copy"}},
                        {{"reduce_scatter_many", "--in-place", "--threads"}, {"one_way", "read_write"}},
                        {{"all_gather", "--memory", "mosaic"}, {"one_way"}},
                        {{"barrier"}, {"one_way"}}};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.arguments[0]);
    Words arguments = one.arguments;
    arguments.insert(arguments.end(), {"--ranks", "2", "-b", "64", "-e", "64K", "-f", "1024", "--iters", "3"});
    const Benched run = bench(arguments);
    const bool has_lines = !run.json["oversubscribed"].get<bool>();  // or there is one core
    const Json& limits = run.json["limits"];
    ASSERT_TRUE(limits.is_object()) << run.result.out;
    for (const char* key : {"bytes", "copy_gb_s", "read_write_gb_s", "sources"}) expect_positive(limits[key], key);
    EXPECT_EQ(limits["one_way_us"].is_number(), has_lines);
    EXPECT_NE(run.result.out.find("read 2 write one"), std::string::npos) << run.result.out;
    EXPECT_NE(run.result.out.find("%limit"), std::string::npos);
    for (const Json& row : run.json["results"]) {
      if (has_lines || one.kinds.size() > 1) expect_limit(row, one.kinds);
    }
  }
}

TEST(BenchResults, LimitsCanBeLeftOut) {
  const Benched run = bench({"all_gather", "--ranks", "2", "-b", "64", "-e", "64", "--no-limits"});
  EXPECT_TRUE(run.json["limits"].is_null());
  EXPECT_TRUE(run.json["results"][0]["limit"].is_null());
  EXPECT_EQ(lines_of(run.result.out).back().back(), '-') << run.result.out;
}

TEST(BenchResults, HavePercentilesAndBatches) {
  const Benched run = bench({"all_gather", "--ranks", "2", "-b", "8", "-e", "8M", "-f", "1048576", "--percentiles",
                             "--no-limits", "--threads"});
  for (const char* column : {"p50_us", "p90_us", "p99_us"})
    EXPECT_NE(run.result.out.find(column), std::string::npos) << column;
  ASSERT_EQ(run.json["results"].size(), 2u);
  for (const Json& row : run.json["results"]) {
    const Json& time = row["time_us"];
    double before = 0;
    for (const char* key : {"min", "p50", "p90", "p99", "max"}) {
      EXPECT_GE(time[key].get<double>(), before) << key << " of " << row;
      before = time[key];
    }
    EXPECT_EQ(time["p50"], time["median"]);
    EXPECT_GE(row["samples"], 20);
    EXPECT_LE(row["samples"], 1000);
    EXPECT_GE(row["batch"], 1);
  }
  EXPECT_EQ(run.json["results"][1]["batch"], 1);  // no 8 MiB are gathered within 2 us
}

TEST(BenchResults, SayWhereRanksRan) {
  const Benched free = bench({"barrier", "--ranks", "2", "--no-limits"});
  EXPECT_EQ(free.json["bound"], false);
  EXPECT_NE(free.result.out.find("not bound, may run on cores"), std::string::npos) << free.result.out;
  for (const bool threads : {false, true}) {
    Words arguments = {"barrier", "--ranks", "3", "--no-limits", "--bind"};
    if (threads) arguments.push_back("--threads");
    const Benched run = bench(arguments);
    EXPECT_EQ(run.json["bound"], true);
    ASSERT_EQ(run.json["cores"].size(), 3u);
    std::set<std::string> cores;
    for (const Json& core : run.json["cores"]) {
      EXPECT_EQ(core.get<std::string>().find_first_not_of("0123456789"), std::string::npos) << core;
      cores.insert(core);
    }
    const size_t usable = std::thread::hardware_concurrency();
    EXPECT_EQ(cores.size(), std::min<size_t>(3, usable));
    EXPECT_NE(run.result.out.find("each bound to core"), std::string::npos) << run.result.out;
  }
}

TEST(BenchResults, AreSensibleWithMoreRanksThanCores) {
  const int ranks = 4 * static_cast<int>(std::thread::hardware_concurrency());
  if (ranks > 64) GTEST_SKIP() << "too many cores to outnumber quickly";
  for (const bool threads : {false, true}) {
    Words arguments = {threads ? "all_reduce" : "all_gather",
                       "--ranks",
                       std::to_string(ranks),
                       "-b",
                       "64",
                       "-e",
                       "64K",
                       "-f",
                       "1024",
                       "--iters",
                       "5"};
    if (threads) arguments.push_back("--threads");
    const Benched run = bench(arguments);
    EXPECT_EQ(run.json["oversubscribed"], true);
    EXPECT_TRUE(run.json["limits"]["one_way_us"].is_null());
    EXPECT_NE(run.result.out.find("more ranks than cores"), std::string::npos);
    for (const Json& row : run.json["results"]) {
      EXPECT_EQ(row["wrong"], 0u);
      expect_positive(row["busbw"], "busbw");
      EXPECT_LT(row["time_us"]["median"].get<double>(), 1e6) << row;
      expect_limit(row, {"copy", "read_write_copy"});
    }
  }
}

TEST(BenchResults, TakeItemsSkewOffsetAndExtraBytes) {
  const Benched many = bench({"all_gather_many", "--ranks", "2", "--items", "1000", "--skew", "1", "-b", "2000K", "-e",
                              "2000K", "--iters", "3", "--in-place"});
  ASSERT_EQ(many.json["results"].size(), 1u);
  EXPECT_EQ(many.json["results"][0]["count"], 256'000u);
  EXPECT_EQ(many.json["results"][0]["wrong"], 0u);
  EXPECT_EQ(many.json["items"], 1000u);
  for (const char* memory : {"window", "ordinary"}) {
    const Benched odd = bench({"reduce_scatter_v",
                               "--ranks",
                               "3",
                               "--dtype",
                               "bf16",
                               "--skew",
                               "10",
                               "--offset",
                               "2",
                               "--extra",
                               "2",
                               "-b",
                               "1K",
                               "-e",
                               "64K",
                               "-f",
                               "64",
                               "--memory",
                               memory,
                               "--iters",
                               "3"});
    ASSERT_EQ(odd.json["results"].size(), 2u);
    EXPECT_EQ(odd.json["results"][0]["bytes"], 1026u);
    EXPECT_EQ(odd.json["results"][1]["bytes"], 65538u);
    for (const Json& row : odd.json["results"]) EXPECT_EQ(row["wrong"], 0u);
    EXPECT_EQ(odd.json["offset"], 2u);
  }
  EXPECT_TRUE(fails_with(run_command(Words{"bench", "all_gather", "--ranks", "2", "--offset", "2"}), 2,
                         {"--offset 2", "4 bytes of f32"}));
}

const Words kQuick = {"--ranks", "2", "-b", "1K", "-e", "16K", "-f", "4", "--iters", "3", "--no-limits"};

size_t times(const std::string& text, std::string_view word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(BenchPlots, ShowThisRunAndOthers) {
  const TestDirectory directory;
  const std::string json = directory / "first.json", svg = directory / "all.svg";
  Words first = {"bench", "reduce_scatter", "--json", json};
  first.insert(first.end(), kQuick.begin(), kQuick.end());
  ASSERT_TRUE(succeeded(run_command(first)));
  Words second = {"bench", "all_gather", "--threads", "--plot", svg, "--with", json, json};
  second.insert(second.end(), kQuick.begin(), kQuick.end());
  ASSERT_TRUE(succeeded(run_command(second)));
  const std::string drawn = read_text(svg);
  EXPECT_EQ(xml_fault(drawn), "");
  EXPECT_EQ(times(drawn, "class=\"busbw\""), 3u);
  EXPECT_EQ(times(drawn, "<circle"), 2u * 3 * 3);
  EXPECT_EQ(times(drawn, "this run: all_gather f32, 2 ranks as threads, window</text>"), 1u);
  EXPECT_EQ(times(drawn, "first.json: reduce_scatter sum f32, 2 ranks as processes, window</text>"), 2u);

  const std::string again = directory / "again.svg";
  const CommandResult alone = run_command(Words{"bench", "--plot", again, "--with", json});
  ASSERT_TRUE(succeeded(alone));
  EXPECT_EQ(alone.out, "");
  EXPECT_EQ(xml_fault(read_text(again)), "");
  EXPECT_EQ(times(read_text(again), "<circle"), 2u * 3);
}

TEST(BenchPlots, SayWhatIsMissingBeforeTheyBench) {
  const TestDirectory directory;
  const std::string svg = directory / "x.svg";
  write_text(directory / "bad.json", "{}");
  EXPECT_TRUE(fails_with(run_command(Words{"bench", "all_gather", "--ranks", "2", "--with", "x.json"}), 2, {"--plot"}));
  EXPECT_TRUE(fails_with(run_command(Words{"bench", "barrier", "--ranks", "2", "--plot", svg}), 2, {"barrier"}));
  EXPECT_TRUE(fails_with(run_command(Words{"bench"}), 2, {"collective"}));
  EXPECT_TRUE(fails_with(run_command(Words{"bench", "--plot", svg, "--with", directory / "none.json"}), 1,
                         {"none.json", "No such file"}));
  for (const Words& run : {Words{}, Words{"all_gather", "--ranks", "2"}}) {
    Words arguments = {"bench", "--plot", svg, "--with", directory / "bad.json"};
    arguments.insert(arguments.begin() + 1, run.begin(), run.end());
    const CommandResult result = run_command(arguments);
    EXPECT_TRUE(fails_with(result, 1, {"bad.json: no results of a bench"}));
    EXPECT_EQ(result.out, "");
  }
  EXPECT_EQ(directory.content(), std::set<std::string>{"bad.json"});
}

TEST(BenchTune, WritesAModelThatTheLibraryTakes) {
  const TestDirectory directory;
  const std::string file = directory / "machine.json";
  const Benched run = bench({"--tune", file, "--ranks", "2"});
  const std::string text = read_text(file);
  const Result<MachineModel> model = MachineModel::parse(text);
  ASSERT_TRUE(model.ok()) << model.status().to_string() << "\n" << text;
  EXPECT_GT(model->cached_gbs, 0);
  EXPECT_EQ(run.json["machine"], parse_json(text));
  expect_positive(run.json["barrier_us"], "barrier_us");
  for (const char* dtype : {"u8", "i32", "f16", "bf16", "f32", "f64", "i64", "i8", "u32", "u64", "f8e4m3", "f8e5m2"})
    expect_positive(run.json["reduce_cached_gb_s"][dtype], dtype);
  for (const char* dtype : {"f32", "bf16"}) expect_positive(run.json["reduce_memory_gb_s"][dtype], dtype);
  for (const char* collective : {"all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all"}) {
    for (const char* memory : {"window", "ordinary"})
      expect_positive(run.json["crossover_bytes"][collective][memory], collective);
  }
  EXPECT_NE(run.result.out.find("all_gather, window: direct from"), std::string::npos);
  // And a run that plans by it is right.
  const Benched planned = bench({"all_gather", "--ranks", "2", "-b", "64", "-e", "64K", "-f", "32", "--no-limits"},
                                {"SHARDCOMM_TUNE_FILE=" + file});
  for (const Json& row : planned.json["results"]) EXPECT_EQ(row["wrong"], 0u);
}

TEST(BenchTune, OmitsFiguresThatThreadsCannotMeasure) {
  const TestDirectory directory;
  const std::string file = directory / "machine.json";
  const Benched run = bench({"--tune", file, "--ranks", "2", "--threads"});
  const Json unmeasured = run.json["unmeasured"];
  ASSERT_GE(unmeasured.size(), 2u) << run.result.out;
  EXPECT_TRUE(unmeasured[unmeasured.size() - 2].get<std::string>().starts_with("attach_us, attach_gbs: "));
  EXPECT_TRUE(unmeasured.back().get<std::string>().starts_with("staged_gbs: "));
  EXPECT_EQ(run.json["machine"]["attach_us"], MachineModel().attach_us);
  const Result<MachineModel> model = MachineModel::parse(read_text(file));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_FALSE(model->attach_gbs || model->staged_gbs) << read_text(file);
  const Benched planned = bench({"all_gather", "--ranks", "2", "--memory", "ordinary", "-b", "64K", "-e", "64K"},
                                {"SHARDCOMM_TUNE_FILE=" + file});
  EXPECT_EQ(planned.json["results"][0]["wrong"], 0u);
  EXPECT_TRUE(fails_with(run_command(Words{"bench", "barrier", "--tune", directory / "x", "--ranks", "2"}), 2,
                         {"--tune", "no collective"}));
}

}  // namespace
}  // namespace shardcomm::testing
