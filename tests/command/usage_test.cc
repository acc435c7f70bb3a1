// What the command line takes, refuses and tells. A usage error is one line that lists what would have been valid, exit
// code 2, and nothing is started or written.
#include <sstream>

#include "shardcomm/types.h"
#include "tests/command/child.h"

namespace shardcomm::testing {
namespace {

struct Misuse {
  const char* name;
  Words arguments;
  std::vector<std::string_view> words;  // of the error
};

void PrintTo(const Misuse& misuse, std::ostream* out) { *out << misuse.name; }

class Misused : public ::testing::TestWithParam<Misuse> {};

TEST_P(Misused, IsOneLineThatListsWhatIsValid) {
  const CommandResult result = run_command(GetParam().arguments);
  EXPECT_TRUE(fails_with(result, 2, GetParam().words));
  EXPECT_EQ(result.out, "");
}

INSTANTIATE_TEST_SUITE_P(
    Command, Misused,
    ::testing::Values(
        Misuse{"Nothing", {}, {"subcommand", "run", "info", "bench", "train", "generate", "ckpt"}},
        Misuse{
            "UnknownSubcommand", {"frobnicate"}, {"'frobnicate'", "run", "info", "bench", "train", "generate", "ckpt"}},
        Misuse{"UnknownFlagOfRoot", {"--frobnicate"}, {"'--frobnicate'", "train"}},
        Misuse{"UnknownFlagOfRun",
               {"run", "--frobnicate", "-n", "1", "--", "true"},
               {"'--frobnicate'", "--ranks", "--threads-per-rank"}},
        Misuse{"UnknownFlagOfInfo", {"info", "--frobnicate"}, {"'--frobnicate'", "--json"}},
        Misuse{"UnknownFlagOfBench", {"bench", "barrier", "--frobnicate"}, {"'--frobnicate'", "--dtype", "--in-place"}},
        Misuse{"UnknownFlagOfTrain", {"train", "--frobnicate", "3"}, {"'--frobnicate'", "--stage", "--timeline"}},
        Misuse{
            "UnknownFlagOfGenerate", {"generate", "--checkpoint", "x", "--frobnicate"}, {"'--frobnicate'", "--top-k"}},
        Misuse{"UnknownFlagOfVerify", {"ckpt", "verify", "x", "--frobnicate"}, {"ckpt verify", "'--frobnicate'"}},
        Misuse{"CkptAlone", {"ckpt"}, {"inspect", "verify"}},
        Misuse{"UnknownCkpt", {"ckpt", "frobnicate"}, {"'frobnicate'", "inspect", "verify"}},
        Misuse{"VerifyWithoutPath", {"ckpt", "verify"}, {"ckpt verify", "path"}},
        Misuse{"RanksZero", {"train", "--ranks", "0"}, {"--ranks", "from 1 to", "'0'"}},
        Misuse{"RanksNegative", {"train", "--ranks", "-1"}, {"--ranks", "from 1 to", "'-1'"}},
        Misuse{"RanksWord", {"train", "--ranks", "abc"}, {"--ranks", "whole number", "'abc'"}},
        Misuse{"RanksOfRunZero", {"run", "-n", "0", "--", "true"}, {"--ranks", "from 1 to", "'0'"}},
        Misuse{"RanksOfRunFraction", {"run", "-n", "1.5", "--", "true"}, {"--ranks", "whole number", "'1.5'"}},
        Misuse{"RanksOfBenchZero", {"bench", "barrier", "--ranks", "0"}, {"--ranks", "from 1 to", "'0'"}},
        Misuse{"RanksOfBenchMissing", {"bench", "barrier"}, {"--ranks", "shardcomm run"}},
        Misuse{"Stage", {"train", "--stage", "7"}, {"--stage", "from 0 to 3", "'7'"}},
        Misuse{"Model", {"train", "--model", "llama"}, {"--model", "gpt2", "'llama'"}},
        Misuse{"Tokenizer", {"train", "--tokenizer", "words"}, {"--tokenizer", "byte", "'words'"}},
        Misuse{"TrainDtype", {"train", "--dtype", "f16"}, {"--dtype", "f32, bf16", "'f16'"}},
        Misuse{
            "Schedule", {"train", "--schedule", "steep"}, {"--schedule", "cosine, linear, constant, wsd", "'steep'"}},
        Misuse{"LearningRate", {"train", "--lr", "-1"}, {"--lr", "0", "1000", "-1"}},
        Misuse{"LearningRateZero", {"train", "--lr", "0"}, {"learning rate", "above 0"}},
        Misuse{"Vocabulary", {"train", "--vocab", "100"}, {"--vocab 100", "257"}},
        Misuse{"Heads", {"train", "--heads", "3", "--channels", "16"}, {"heads", "channels"}},
        Misuse{"BucketBytes", {"train", "--bucket-bytes", "1Q"}, {"--bucket-bytes", "64K", "'1Q'"}},
        Misuse{"TrainTransports", {"train", "--transports", "carrier"}, {"transports", "'carrier'", "auto", "shm"}},
        Misuse{"ResumeAutoWithoutSave", {"train", "--resume", "auto"}, {"--resume auto", "--save"}},
        Misuse{"SaveEveryWithoutSave", {"train", "--save-every", "5"}, {"--save-every", "--save DIR"}},
        Misuse{"TrainProgram", {"train", "--", "true"}, {"train", "'--'"}},
        Misuse{"MissingValue", {"train", "--steps"}, {"--steps"}},
        Misuse{"Collective",
               {"bench", "scan", "--ranks", "2"},
               {"all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all", "barrier", "all_gather_v",
                "reduce_scatter_v", "all_gather_many", "reduce_scatter_many", "'scan'"}},
        Misuse{"BenchDtype",
               {"bench", "all_gather", "--ranks", "2", "--dtype", "f99"},
               {"u8, i32, f16, bf16, f32, f64, i64, i8, u32, u64, f8e4m3, f8e5m2", "'f99'"}},
        Misuse{"BenchOp",
               {"bench", "all_reduce", "--ranks", "2", "--op", "xor"},
               {"sum, average, max, min, product", "'xor'"}},
        Misuse{"OpOfAllGather", {"bench", "all_gather", "--ranks", "2", "--op", "sum"}, {"all_gather", "--op"}},
        Misuse{"PairUnsupported",
               {"bench", "all_reduce", "--ranks", "2", "--op", "average", "--dtype", "i32"},
               {"average", "i32"}},
        Misuse{"AllToAllInPlace", {"bench", "all_to_all", "--ranks", "2", "--in-place"}, {"all_to_all", "in place"}},
        Misuse{"Size", {"bench", "all_gather", "--ranks", "2", "-b", "8X"}, {"256M", "'8X'"}},
        Misuse{"SizesReversed", {"bench", "all_gather", "--ranks", "2", "-b", "1M", "-e", "1K"}, {"1M", "1K"}},
        Misuse{"BenchTransports",
               {"bench", "all_gather", "--ranks", "2", "--transports", "carrier"},
               {"'carrier'", "auto", "shm"}},
        Misuse{"BenchMemory",
               {"bench", "all_gather", "--ranks", "2", "--memory", "tape"},
               {"window, ordinary, mosaic, pool", "'tape'"}},
        Misuse{"MosaicReduces",
               {"bench", "reduce_scatter", "--ranks", "2", "--memory", "mosaic"},
               {"mosaic", "all_gather", "reduce_scatter"}},
        Misuse{"MosaicInPlace",
               {"bench", "all_gather", "--ranks", "2", "--memory", "mosaic", "--in-place"},
               {"mosaic", "--in-place"}},
        Misuse{"MosaicOffset",
               {"bench", "all_gather", "--ranks", "2", "--memory", "mosaic", "--offset", "4"},
               {"mosaic", "--offset"}},
        Misuse{"RunWithoutProgram", {"run", "-n", "2"}, {"PROGRAM"}},
        Misuse{"RunWithoutDashes", {"run", "-n", "2", "true"}, {"'true'", "--", "PROGRAM"}},
        Misuse{"GenerateWithoutCheckpoint", {"generate"}, {"--checkpoint"}},
        Misuse{"Temperature", {"generate", "--checkpoint", "x", "--temperature", "-1"}, {"--temperature", "-1"}},
        Misuse{"TopK", {"generate", "--checkpoint", "x", "--top-k", "few"}, {"--top-k", "'few'"}},
        Misuse{"Seed", {"generate", "--checkpoint", "x", "--seed", "few"}, {"--seed", "few"}}),
    [](const auto& info) { return std::string(info.param.name); });

struct Help {
  Words subcommand;
  Words flags;
};

class HelpTest : public ::testing::TestWithParam<Help> {};

TEST_P(HelpTest, NamesEveryFlag) {
  Words arguments = GetParam().subcommand;
  arguments.push_back("--help");
  const CommandResult result = run_command(arguments);
  EXPECT_TRUE(succeeded(result));
  for (const std::string& flag : GetParam().flags) EXPECT_NE(result.out.find(flag), std::string::npos) << flag;
  // Those that an unknown one would be answered with.
  arguments.back() = "--frobnicate";
  const std::string error = run_command(arguments).err;
  const size_t list = error.find("the flags are ");
  std::istringstream flags(list == std::string::npos ? std::string() : error.substr(list + 14));
  for (std::string flag; flags >> flag;) EXPECT_NE(result.out.find(flag), std::string::npos) << flag;
}

INSTANTIATE_TEST_SUITE_P(
    Command, HelpTest,
    ::testing::Values(
        Help{{}, {"run", "info", "bench", "train", "generate", "ps", "dump", "ckpt", "--version", "--help"}},
        Help{{"run"},
             {"-n", "--threads-per-rank", "-- PROGRAM ARGS", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR",
              "MASTER_PORT", "secret"}},
        Help{{"info"}, {"--json"}}, Help{{"ps"}, {"--json", "waiting", "late"}},
        Help{{"dump"}, {"PID|FILE", "--json", "--output", "--last", "SHARDCOMM_DUMP_DIR"}},
        Help{{"bench"},
             {"all_gather",
              "reduce_scatter",
              "all_reduce",
              "broadcast",
              "all_to_all",
              "barrier",
              "all_gather_v",
              "reduce_scatter_v",
              "all_gather_many",
              "reduce_scatter_many",
              "--ranks",
              "--threads",
              "-b",
              "-e",
              "-f",
              "--dtype",
              "--op",
              "--transports",
              "--in-place",
              "--memory",
              "--iters",
              "--warmup",
              "--check",
              "--seed",
              "--json"}},
        Help{{"train"},
             {"--model",        "gpt2",         "--layers",   "--heads",        "--channels",  "--seq",
              "--vocab",        "--recompute",  "--data",     "--val",          "--tokenizer", "--seed",
              "--ranks",        "--stage",      "--prefetch", "--bucket-bytes", "--dtype",     "--reduce-dtype",
              "--transports",   "--steps",      "--batch",    "--accumulate",   "--lr",        "--warmup",
              "--schedule",     "cosine",       "linear",     "constant",       "wsd",         "--min-lr-ratio",
              "--weight-decay", "--beta1",      "--beta2",    "--eps",          "--clip",      "--eval-every",
              "--save",         "--save-every", "--keep",     "--resume",       "auto",        "--log",
              "--trace",        "--timeline"}},
        Help{{"generate"}, {"--checkpoint", "--prompt", "--tokens", "--temperature", "--top-k", "--seed"}},
        Help{{"ckpt"}, {"inspect", "verify"}}, Help{{"ckpt", "inspect"}, {"path", "--json"}},
        Help{{"ckpt", "verify"}, {"path"}}),
    [](const auto& info) {
      std::string name = "Of";
      for (const std::string& word : info.param.subcommand) (name += "_") += word;
      return name;
    });

TEST(Version, IsOneLine) {
  const CommandResult result = run_command(Words{"--version"});
  EXPECT_TRUE(succeeded(result));
  ASSERT_EQ(lines_of(result.out).size(), 1u) << result.out;
  int major = -1, minor = -1, patch = -1;
  EXPECT_EQ(std::sscanf(result.out.c_str(), "shardcomm %d.%d.%d", &major, &minor, &patch), 3) << result.out;
}

TEST(Info, SaysTheSameForPeopleAndAsJson) {
  const CommandResult text = run_command(Words{"info"}), json_text = run_command(Words{"info", "--json"});
  EXPECT_TRUE(succeeded(text));
  EXPECT_TRUE(succeeded(json_text));
  const nlohmann::json info = parse_json(json_text.out);
  for (const char* field : {"version", "abi", "compiler", "transports", "machine", "options"})
    EXPECT_TRUE(info.contains(field)) << field;
  EXPECT_NE(text.out.find(info["version"].get<std::string>()), std::string::npos);
  bool shm = false;
  for (const nlohmann::json& transport : info["transports"]) {
    const std::string name = transport["name"];
    EXPECT_NE(text.out.find("  " + name), std::string::npos) << name;
    EXPECT_EQ(transport["usable"].get<bool>(), transport["reason"].is_null()) << transport;
    shm = shm || (name == "shm" && transport["usable"].get<bool>());
  }
  EXPECT_TRUE(shm) << info["transports"];
  EXPECT_GT(info["machine"]["memory_bytes"].get<uint64_t>(), 0u);
  EXPECT_GT(info["machine"]["usable_threads"].get<int>(), 0);
  EXPECT_EQ(info["machine"]["host_kernels"].get<std::string>(), host_kernels());
  EXPECT_NE(text.out.find("host kernels: " + std::string(host_kernels()) + "\n"), std::string::npos) << text.out;
  EXPECT_GT(info["options"].size(), 5u);
}

TEST(Info, NamesABadKnobOfTheEnvironment) {
  const CommandResult result = run_command({.arguments = {"info"}, .environment = {"SHARDCOMM_TRANSPORTS=carrier"}});
  EXPECT_TRUE(fails_with(result, 1, {"carrier", "shm"}));
}

}  // namespace
}  // namespace shardcomm::testing
