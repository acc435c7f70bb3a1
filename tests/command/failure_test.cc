// Training that cannot begin or go on because of files: one line says why, exit code 1, nothing half-written stays.
#include <filesystem>

#include "tests/command/training.h"

namespace shardcomm::testing {
namespace {

namespace fs = std::filesystem;

class TrainFailure : public TrainingTest {
 protected:
  CommandResult train(const Words& more) const { return TrainingTest::train(2, more); }
  // A checkpoint of 4 steps in `name`.
  std::string save(const std::string& name) {
    EXPECT_TRUE(succeeded(train({"--steps", "4", "--save", directory_ / name})));
    return directory_ / name + "/step-00000004";
  }
  void flip_byte(const std::string& path, size_t at) {
    std::string bytes = read_text(path);
    ASSERT_LT(at, bytes.size());
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    write_text(path, bytes);
  }
  // What reads a checkpoint refuses this one with the same words.
  void expect_refused(const std::string& step, const std::vector<std::string_view>& words) {
    const std::set<std::string> content = directory_.content();
    EXPECT_TRUE(fails_with(run_command(Words{"ckpt", "verify", step}), 1, words));
    EXPECT_TRUE(fails_with(run_command(Words{"generate", "--checkpoint", step}), 1, words));
    EXPECT_TRUE(fails_with(train({"--steps", "6", "--resume", step, "--save", directory_ / "new", "--log",
                                  directory_ / "new.jsonl", "--timeline", directory_ / "new.svg"}),
                           1, words));
    EXPECT_EQ(directory_.content(), content) << "something was written";
  }
};

TEST_F(TrainFailure, NamesDataThatCannotBeRead) {
  EXPECT_TRUE(fails_with(train({"--data", directory_ / "none.txt"}), 1, {"none.txt", "No such file or directory"}));
  EXPECT_TRUE(fails_with(train({"--data", directory_.path()}), 1, {directory_.path(), "Is a directory"}));
  EXPECT_TRUE(fails_with(train({"--val", directory_ / "none.txt"}), 1, {"none.txt", "No such file or directory"}));
}

TEST_F(TrainFailure, NamesDataThatIsTooShort) {
  write_text(directory_ / "short.txt", "short");
  const Words alone = {"train", "--ranks", "2", "--seq", "16", "--data", directory_ / "short.txt"};
  EXPECT_TRUE(fails_with(run_command(alone), 1, {"text has", "tokens", "takes 17"}));
  EXPECT_TRUE(fails_with(train({"--val", directory_ / "short.txt"}), 1, {"validation text has 6 tokens", "takes 17"}));
}

TEST_F(TrainFailure, RefusesACheckpointWithAFlippedByte) {
  const std::string step = save("run"), file = step + "/shard-0001-of-0002.safetensors";
  EXPECT_TRUE(succeeded(run_command(Words{"ckpt", "verify", step})));
  flip_byte(file, read_text(file).size() - 5);
  EXPECT_TRUE(fails_with(run_command(Words{"ckpt", "verify", step}), 1, {file, "tensor", "checksum"}));
  EXPECT_TRUE(succeeded(run_command(Words{"ckpt", "inspect", step})));
  const std::set<std::string> content = directory_.content();
  EXPECT_TRUE(fails_with(train({"--steps", "6", "--resume", step, "--log", directory_ / "new.jsonl"}), 1,
                         {file, "tensor", "checksum"}));
  EXPECT_EQ(directory_.content(), content);
}

TEST_F(TrainFailure, RefusesACheckpointWithAFlippedByteOfAParameter) {
  const std::string step = save("run"), file = step + "/shard-0000-of-0002.safetensors";
  const std::string bytes = read_text(file);
  const auto head = static_cast<unsigned char>(bytes[0]) + 256u * static_cast<unsigned char>(bytes[1]);
  flip_byte(file, 8 + head + 2);  // of the first tensor
  expect_refused(step, {file, "tensor", "checksum"});
}

TEST_F(TrainFailure, RefusesATruncatedCheckpoint) {
  const std::string step = save("run"), file = step + "/shard-0000-of-0002.safetensors";
  fs::resize_file(file, fs::file_size(file) - 1);
  expect_refused(step, {file});
  fs::resize_file(file, 3);
  expect_refused(step, {file});
  fs::remove(file);
  expect_refused(step, {file, "No such file or directory"});
}

TEST_F(TrainFailure, RefusesABadManifest) {
  const std::string step = save("run"), file = step + "/manifest.json", good = read_text(file);
  for (const std::string& bad : {std::string(), std::string("{"), std::string("[]"), std::string("{}"),
                                 good.substr(0, good.size() / 2), std::string("\0\xff", 2)}) {
    SCOPED_TRACE("manifest: " + bad.substr(0, 20));
    write_text(file, bad);
    expect_refused(step, {file});
  }
}

TEST_F(TrainFailure, NamesACheckpointThatIsNotThere) {
  expect_refused(directory_ / "step-00000009", {"step-00000009"});
  fs::create_directory(directory_ / "step-00000009");
  expect_refused(directory_ / "step-00000009", {"step-00000009", "manifest.json"});
  EXPECT_TRUE(fails_with(run_command(Words{"generate", "--checkpoint", directory_ / "none"}), 1, {"none"}));
  fs::create_directory(directory_ / "empty");
  EXPECT_TRUE(fails_with(run_command(Words{"generate", "--checkpoint", directory_ / "empty"}), 1,
                         {"empty", "no complete checkpoint"}));
}

TEST_F(TrainFailure, RefusesACheckpointOfAnotherRun) {
  const std::string step = save("run");
  EXPECT_TRUE(fails_with(train({"--resume", step, "--vocab", "300"}), 1, {step, "vocab 257", "vocab 300"}));
  EXPECT_TRUE(fails_with(train({"--resume", step, "--seed", "5"}), 1, {step, "seed 5"}));
  EXPECT_TRUE(fails_with(train({"--resume", step, "--val", corpus_}), 1, {step, "tokens"}));
}

// An incomplete checkpoint, as a crash leaves it, is skipped with a word about it.
TEST_F(TrainFailure, SkipsAnIncompleteCheckpoint) {
  EXPECT_TRUE(succeeded(train({"--steps", "4", "--save", directory_ / "run", "--save-every", "2"})));
  fs::remove(directory_ / "run/step-00000004/manifest.json");
  const CommandResult result = train({"--steps", "4", "--save", directory_ / "run", "--resume", "auto"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("step-00000004 is incomplete"), std::string::npos) << result.err;
  EXPECT_NE(result.out.find("resumed at step 2"), std::string::npos) << result.out;
  EXPECT_TRUE(succeeded(run_command(Words{"ckpt", "verify", directory_ / "run/step-00000004"})));
}

// Found out before the first step, not after the last.
TEST_F(TrainFailure, NamesOutputThatCannotBeWritten) {
  const std::set<std::string> content = directory_.content();
  const std::string many = "1000000";  // steps: nobody waits for their end
  for (const char* flag : {"--log", "--trace", "--timeline"}) {
    SCOPED_TRACE(flag);
    EXPECT_TRUE(fails_with(train({flag, directory_ / "no/such/file", "--steps", many}), 1,
                           {"no/such/file", "No such file or directory"}));
    EXPECT_TRUE(
        fails_with(train({flag, corpus_ + "/file", "--steps", many}), 1, {corpus_ + "/file", "Not a directory"}));
    EXPECT_TRUE(
        fails_with(train({flag, directory_.path(), "--steps", many}), 1, {directory_.path(), "Is a directory"}));
  }
  EXPECT_TRUE(
      fails_with(train({"--save", corpus_ + "/steps", "--steps", many}), 1, {corpus_ + "/steps", "Not a directory"}));
  EXPECT_TRUE(fails_with(train({"--save", corpus_, "--steps", many}), 1, {corpus_, "Not a directory"}));
  EXPECT_EQ(directory_.content(), content);
}

TEST_F(TrainFailure, NamesALogThatBecomesFull) {
  const CommandResult result = train({"--log", "/dev/full", "--steps", "1000000"});
  EXPECT_EQ(result.code, 1);
  for (const std::string& line : lines_of(result.err)) {
    EXPECT_TRUE(line.starts_with("shardcomm: error: ")) << line;
    EXPECT_NE(line.find("/dev/full"), std::string::npos) << "every line names the cause: " << line;
  }
}

}  // namespace
}  // namespace shardcomm::testing
