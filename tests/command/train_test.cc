// shardcomm train on a tiny model: what a run tells and leaves, that it can be interrupted and continued, also with
// another number of ranks.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "tests/command/training.h"
#include "tests/command/xml.h"

namespace shardcomm::testing {
namespace {

namespace fs = std::filesystem;

class Train : public TrainingTest {
 protected:
  std::vector<std::string> steps_in(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_ / name)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
};

void expect_complete(const Json& line, bool evaluated) {
  SCOPED_TRACE(line.dump());
  for (const char* field : {"step", "tokens", "live_bytes", "peak_bytes", "bytes_sent"})
    EXPECT_TRUE(line.contains(field) && line[field].is_number_unsigned()) << field;
  for (const char* field : {"loss", "lr", "grad_norm", "dt_ms", "tok_s", "comm_ms", "exposed_comm_ms"}) {
    ASSERT_TRUE(line.contains(field) && line[field].is_number_float()) << field;
    EXPECT_GE(line[field].get<double>(), 0) << field;
  }
  EXPECT_TRUE(line.contains("mfu") && (line["mfu"].is_null() || line["mfu"].is_number()));
  EXPECT_EQ(line.contains("val_loss"), evaluated);
  EXPECT_EQ(line.size(), evaluated ? 14u : 13u);
  EXPECT_GE(line["peak_bytes"], line["live_bytes"]);
}

TEST_F(Train, LogsEveryField) {
  const std::string log = directory_ / "log.jsonl";
  EXPECT_TRUE(succeeded(train(2, {"--steps", "7", "--log", log, "--eval-every", "3"})));
  const std::vector<Json> steps = read_log(log);
  ASSERT_EQ(steps.size(), 7u);
  for (size_t i = 0; i < steps.size(); ++i) {
    expect_complete(steps[i], i + 1 == 3 || i + 1 == 6 || i + 1 == 7);
    EXPECT_EQ(steps[i]["step"], i + 1);
    EXPECT_EQ(steps[i]["tokens"], (i + 1) * kGlobalBatch * 16);
    if (i > 0) {  // the first step may differ: what was gathered and told before it
      EXPECT_EQ(steps[i]["bytes_sent"], steps[1]["bytes_sent"]);
    }
  }
  EXPECT_NEAR(steps[0]["loss"].get<double>(), std::log(257.0), 0.5);
  EXPECT_LT(steps[6]["loss"].get<double>(), steps[0]["loss"].get<double>());
}

TEST_F(Train, SaysMemoryAndTrafficBesideTheEstimates) {
  const CommandResult result = train(3, {"--steps", "3"});
  EXPECT_TRUE(succeeded(result));
  for (const char* words : {"tokens/s", "bytes per rank", "estimate", "bytes sent per rank and step", "formula"})
    EXPECT_NE(result.out.find(words), std::string::npos) << words << "\n" << result.out;
}

TEST_F(Train, TracesAllLanesOfAllRanks) {
  const std::string trace = directory_ / "trace.json", svg = directory_ / "step.svg";
  EXPECT_TRUE(succeeded(train(4, {"--steps", "3", "--trace", trace, "--timeline", svg})));
  const Json json = parse_json(read_text(trace));
  const Json& events = json.is_object() ? json["traceEvents"] : json;
  ASSERT_TRUE(events.is_array());
  std::map<std::pair<int, int>, std::string> lanes;  // by process and thread, as Chrome's format has it
  std::map<std::pair<int, std::string>, int> counts;
  for (const Json& event : events) {
    if (event["ph"] == "M" && event["name"] == "thread_name")
      lanes[{event["pid"], event["tid"]}] = event["args"]["name"];
  }
  for (const Json& event : events) {
    if (event["ph"] == "M") continue;
    ++counts[{event["pid"], lanes[{event["pid"], event["tid"]}]}];
    EXPECT_GE(event["ts"].get<double>(), 0);
    EXPECT_GE(event.value("dur", 0.0), 0);
  }
  for (int rank = 0; rank < 4; ++rank) {
    for (const char* lane : {"gather", "compute", "reduce", "free"})
      EXPECT_GT((counts[{rank, lane}]), 2) << "rank " << rank << ", " << lane;
  }
  const std::string drawing = read_text(svg);
  EXPECT_EQ(xml_fault(drawing), "");
  EXPECT_TRUE(drawing.starts_with("<svg ")) << drawing.substr(0, 80);
  for (const char* words : {"rank 0", "rank 1", "rank 2", "rank 3", "gather", "compute", "reduce", "free", "h.1"})
    EXPECT_NE(drawing.find(words), std::string::npos) << words;
}

// 10 steps are 5 steps, a checkpoint, new processes and 5 more.
class Interrupted : public Train, public ::testing::WithParamInterface<const char*> {};

TEST_P(Interrupted, ContinuesBitForBit) {
  const Words common = {"--stage", GetParam(), "--warmup", "3", "--clip", "1.5", "--bucket-bytes", "4K"};
  const auto run = [&](const char* steps, const char* name, const Words& more) {
    Words flags = common;
    flags.insert(flags.end(), {"--steps", steps, "--save", directory_ / name, "--log", directory_ / name + ".jsonl"});
    flags.insert(flags.end(), more.begin(), more.end());
    EXPECT_TRUE(succeeded(train(2, flags)));
  };
  run("10", "whole", {"--eval-every", "5"});
  run("5", "halves", {"--resume", "auto"});  // nothing is there: it begins
  run("10", "halves", {"--resume", "auto"});
  const std::vector<Json> whole = read_log(directory_ / "whole.jsonl"), halves = read_log(directory_ / "halves.jsonl");
  ASSERT_EQ(whole.size(), 10u);
  ASSERT_EQ(halves.size(), 10u);
  for (size_t i = 0; i < 10; ++i) expect_same_step(whole[i], halves[i]);
  expect_same_tensors(directory_ / "whole/step-00000010", directory_ / "halves/step-00000010");
  for (const auto& file : {"shard-0000-of-0002.safetensors", "shard-0001-of-0002.safetensors"})
    EXPECT_EQ(read_text(directory_ / "whole/step-00000010/" + file),
              read_text(directory_ / "halves/step-00000010/" + file));
}

INSTANTIATE_TEST_SUITE_P(Stages, Interrupted, ::testing::Values("3", "1"),
                         [](const auto& info) { return std::string("Stage") + info.param; });

TEST_F(Train, ACheckpointOfFourResumesOnThreeTwoAndOne) {
  EXPECT_TRUE(succeeded(train(4, {"--steps", "10", "--save", directory_ / "four", "--save-every", "5", "--keep", "0",
                                  "--log", directory_ / "4.jsonl"})));
  const std::vector<Json> uninterrupted = read_log(directory_ / "4.jsonl");
  ASSERT_EQ(uninterrupted.size(), 10u);
  for (const int ranks : {3, 2, 1}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    const std::string log = directory_ / std::to_string(ranks) + ".jsonl";
    EXPECT_TRUE(
        succeeded(train(ranks, {"--steps", "10", "--resume", directory_ / "four/step-00000005", "--log", log})));
    const std::vector<Json> resumed = read_log(log);
    ASSERT_EQ(resumed.size(), 5u);
    for (size_t i = 0; i < 5; ++i) {
      const Json &one = uninterrupted[5 + i], &other = resumed[i];
      EXPECT_EQ(one["step"], other["step"]);
      EXPECT_EQ(one["tokens"], other["tokens"]);
      for (const char* field : {"loss", "grad_norm"}) {
        const double expected = one[field], got = other[field];
        EXPECT_NEAR(got, expected, 1e-5 * expected) << field << " of step " << one["step"];
      }
    }
  }
}

TEST_F(Train, KeepsAsManyCheckpointsAsAsked) {
  EXPECT_TRUE(succeeded(train(2, {"--steps", "8", "--save", directory_ / "two", "--save-every", "2", "--keep", "2"})));
  EXPECT_EQ(steps_in("two"), (std::vector<std::string>{"step-00000006", "step-00000008"}));
  EXPECT_TRUE(succeeded(train(2, {"--steps", "8", "--save", directory_ / "all", "--save-every", "3", "--keep", "0"})));
  EXPECT_EQ(steps_in("all"), (std::vector<std::string>{"step-00000003", "step-00000006", "step-00000008"}));
}

TEST_F(Train, ResumeOfAFinishedRunDoesNothing) {
  const Words flags = {"--steps", "3", "--save", directory_ / "run", "--resume", "auto", "--log", directory_ / "log"};
  EXPECT_TRUE(succeeded(train(2, flags)));
  const std::string before = read_text(directory_ / "log");
  const CommandResult again = train(2, flags);
  EXPECT_TRUE(succeeded(again));
  EXPECT_NE(again.out.find("step 3 of 3"), std::string::npos) << again.out;
  EXPECT_EQ(read_text(directory_ / "log"), before);
}

TEST_F(Train, TakesAllKnobsTogether) {
  EXPECT_TRUE(succeeded(run_command(Words{"train",
                                          "--ranks",
                                          "2",
                                          "--model",
                                          "gpt2",
                                          "--layers",
                                          "1",
                                          "--heads",
                                          "1",
                                          "--channels",
                                          "8",
                                          "--seq",
                                          "8",
                                          "--vocab",
                                          "300",
                                          "--recompute",
                                          "block",
                                          "--data",
                                          corpus_,
                                          corpus_,
                                          "--val",
                                          corpus_,
                                          "--tokenizer",
                                          "byte",
                                          "--seed",
                                          "9",
                                          "--stage",
                                          "2",
                                          "--prefetch",
                                          "2",
                                          "--bucket-bytes",
                                          "1.5K",
                                          "--dtype",
                                          "bf16",
                                          "--reduce-dtype",
                                          "bf16",
                                          "--transports",
                                          "shm",
                                          "--steps",
                                          "4",
                                          "--batch",
                                          "2",
                                          "--accumulate",
                                          "2",
                                          "--lr",
                                          "0.01",
                                          "--warmup",
                                          "1",
                                          "--schedule",
                                          "wsd",
                                          "--min-lr-ratio",
                                          "0.2",
                                          "--weight-decay",
                                          "0.3",
                                          "--beta1",
                                          "0.8",
                                          "--beta2",
                                          "0.9",
                                          "--eps",
                                          "1e-6",
                                          "--clip",
                                          "0.5",
                                          "--eval-every",
                                          "2"})));
}

}  // namespace
}  // namespace shardcomm::testing
