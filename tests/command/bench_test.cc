// shardcomm bench: every collective, small, with ranks as processes and as threads.
#include <cmath>

#include "shardcomm/window.h"
#include "tests/command/child.h"

namespace shardcomm::testing {
namespace {

using Json = nlohmann::json;

struct Case {
  std::string collective;
  Words flags = {};
};

void expect_sane(const Json& row) {
  SCOPED_TRACE(row.dump());
  EXPECT_TRUE(row["wrong"].is_null() || row["wrong"] == 0u);
  EXPECT_TRUE(row["bytes"].is_number_unsigned() && row["count"].is_number_unsigned());
  EXPECT_TRUE(row["dtype"].is_string() && row["op"].is_string());
  const double min = row["time_us"]["min"], median = row["time_us"]["median"], max = row["time_us"]["max"];
  EXPECT_GT(min, 0);
  EXPECT_LE(min, median);
  EXPECT_LE(median, max);
  const double algbw = row["algbw"], bytes = row["bytes"];
  EXPECT_NEAR(algbw, bytes / median / 1e3, 1e-9 + 1e-6 * algbw);
  EXPECT_GE(row["busbw"].get<double>(), 0);
}

// Runs it, and checks the table and the JSON file against each other.
Json bench(const Case& one, int ranks, const Words& more) {
  const TestDirectory directory;
  const std::string file = directory / "bench.json";
  Words arguments = {"bench",       one.collective, "--ranks", std::to_string(ranks), "--iters", "3", "--warmup", "1",
                     "--no-limits", "--json",       file};
  arguments.insert(arguments.end(), one.flags.begin(), one.flags.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  std::string shown;
  for (const std::string& word : arguments) shown += word + " ";
  SCOPED_TRACE(shown);
  const CommandResult result = run_command(arguments);
  EXPECT_TRUE(succeeded(result));
  const Json json = parse_json(read_text(file));
  if (!json.contains("results")) {
    ADD_FAILURE() << "no results";
    return {};
  }
  EXPECT_EQ(json["collective"], one.collective);
  EXPECT_EQ(json["ranks"], ranks);
  EXPECT_GT(json["seed"].get<uint64_t>(), 0u);
  for (const Json& row : json["results"]) expect_sane(row);
  std::vector<std::string> rows, heads;
  for (const std::string& line : lines_of(result.out)) {
    if (line.starts_with("#")) continue;
    (line.find("busbw") == std::string::npos ? rows : heads).push_back(line);
  }
  EXPECT_EQ(rows.size(), json["results"].size()) << result.out;
  EXPECT_EQ(heads.size(), 1u);
  for (const char* column : {"bytes", "count", "dtype", "op", "min_us", "median_us", "max_us", "algbw", "busbw",
                             "wrong", "limit_us", "%limit"})
    EXPECT_NE(heads.front().find(column), std::string::npos) << column;
  return json;
}

const Words kSmallSizes = {"-b", "8", "-e", "64K", "-f", "32"};

const char* const kCollectives[] = {
    "all_gather", "reduce_scatter", "all_reduce",       "broadcast",       "all_to_all",
    "barrier",    "all_gather_v",   "reduce_scatter_v", "all_gather_many", "reduce_scatter_many"};

class BenchCollective : public ::testing::TestWithParam<const char*> {};

TEST_P(BenchCollective, GivesTheExpectedBits) {
  for (const int ranks : {2, 3}) {
    for (const bool threads : {false, true}) {
      Words more = kSmallSizes;
      if (threads) more.push_back("--threads");
      const Json json = bench({GetParam()}, ranks, more);
      EXPECT_EQ(json["mode"], threads ? "threads" : "processes");
      EXPECT_EQ(json["memory"], "window");
      EXPECT_EQ(json["results"].size(), std::string_view(GetParam()) == "barrier" ? 1u : 3u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Command, BenchCollective, ::testing::ValuesIn(kCollectives),
                         [](const auto& info) { return std::string(info.param); });

TEST(Bench, TakesDtypesAndOps) {
  const Case cases[] = {{"all_reduce", {"--dtype", "bf16", "--op", "max"}},
                        {"reduce_scatter", {"--dtype", "f16", "--op", "average"}},
                        {"reduce_scatter_v", {"--dtype", "i32", "--op", "min"}},
                        {"reduce_scatter_many", {"--dtype", "f64", "--op", "product"}},
                        {"all_gather", {"--dtype", "u8"}}};
  for (const Case& one : cases) {
    const Json json = bench(one, 3, kSmallSizes);
    for (const Json& row : json["results"]) {
      EXPECT_EQ(row["dtype"], one.flags[1]);
      EXPECT_EQ(row["op"], one.flags.size() > 2 ? one.flags[3] : "none");
    }
  }
}

TEST(Bench, WorksInPlaceAndInOrdinaryMemory) {
  for (const char* collective : {"all_gather", "reduce_scatter", "all_reduce", "all_gather_v", "reduce_scatter_many"}) {
    EXPECT_EQ(bench({collective, {"--in-place"}}, 2, kSmallSizes)["in_place"], true);
    EXPECT_EQ(bench({collective, {"--memory", "ordinary"}}, 3, kSmallSizes)["memory"], "ordinary");
  }
  bench({"all_reduce", {"--in-place", "--memory", "ordinary", "--threads"}}, 3, kSmallSizes);
}

TEST(Bench, GathersAMosaicByWholePages) {
  const size_t page = MosaicWindow::granularity_bytes();
  for (const char* dtype : {"f32", "u8", "f64"}) {
    for (const bool threads : {false, true}) {
      Words more = {"--memory", "mosaic", "--dtype", dtype};
      if (threads) more.push_back("--threads");
      const Json json = bench({"all_gather", {"-b", "8", "-e", "256K", "-f", "32"}}, 3, more);
      EXPECT_EQ(json["memory"], "mosaic");
      ASSERT_EQ(json["results"].size(), 2u);  // 8, 256 and 8192 bytes come to the same
      EXPECT_EQ(json["results"][0]["bytes"], 3 * page);
      EXPECT_EQ(json["results"][1]["bytes"], ((size_t{256} << 10) / 3 + page - 1) / page * page * 3);
      for (const Json& row : json["results"]) {
        EXPECT_EQ(row["wrong"], 0u);
        EXPECT_EQ(row["busbw"], 0.0);
      }
    }
  }
}

TEST(Bench, RepeatsASeedAndTakesSizesByLetter) {
  const Json json = bench({"all_gather", {"--seed", "77", "-b", "1K", "-e", "0.25M", "-f", "4"}}, 2, {});
  EXPECT_EQ(json["seed"], 77u);
  ASSERT_EQ(json["results"].size(), 5u);
  EXPECT_EQ(json["results"][0]["bytes"], 1024u);
  EXPECT_EQ(json["results"][4]["bytes"], 262144u);
}

TEST(Bench, WithoutCheckSaysSo) {
  const Json json = bench({"all_gather", {"--no-check"}}, 2, {"-b", "8", "-e", "8"});
  EXPECT_TRUE(json["results"][0]["wrong"].is_null());
}

TEST(Bench, ACallLargerThanMemoryIsOneLine) {
  EXPECT_TRUE(fails_with(run_command(Words{"bench", "all_gather", "--ranks", "2", "-b", "4T", "-e", "4T"}), 1,
                         {"out_of_memory", "window", "bytes"}));
#if !defined(__SANITIZE_ADDRESS__)  // which ends a process that asks for so much
  EXPECT_TRUE(fails_with(
      run_command(Words{"bench", "all_gather", "--ranks", "2", "-b", "4T", "-e", "4T", "--memory", "ordinary"}), 1,
      {"out_of_memory", "bytes"}));
#endif
}

// Of a bench that would take long.
TEST(Bench, ResultsThatCannotBeWrittenAreOneLineBeforeItBegins) {
  const TestDirectory directory;
  for (const char* flag : {"--json", "--plot", "--tune"}) {
    for (const bool threads : {false, true}) {
      Words arguments = {"bench", "--ranks", "2", flag, directory / "no/such.json"};
      if (std::string_view(flag) != "--tune") arguments.push_back("all_gather");
      if (threads) arguments.push_back("--threads");
      const CommandResult result = run_command(arguments);
      EXPECT_TRUE(fails_with(result, 1, {"no/such.json", "No such file or directory"}));
      EXPECT_EQ(result.out, "");
    }
  }
  EXPECT_TRUE(directory.content().empty());
}

}  // namespace
}  // namespace shardcomm::testing
