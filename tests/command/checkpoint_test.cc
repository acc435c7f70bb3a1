// shardcomm ckpt and generate on what a short training run has saved.
#include "tests/command/training.h"

namespace shardcomm::testing {
namespace {

class SavedCheckpoint : public TrainingTest {
 protected:
  SavedCheckpoint() { EXPECT_TRUE(succeeded(train(2, {"--steps", "12", "--lr", "0.01", "--save", saved_}))); }
  const std::string saved_ = directory_ / "saved", step_ = saved_ + "/step-00000012";
};

TEST_F(SavedCheckpoint, IsInspectedAndVerified) {
  for (const std::string& path : {saved_, step_}) {
    const CommandResult text = run_command(Words{"ckpt", "inspect", path}),
                        json_text = run_command(Words{"ckpt", "inspect", "--json", path}),
                        verified = run_command(Words{"ckpt", "verify", path});
    EXPECT_TRUE(succeeded(text));
    EXPECT_NE(text.out.find("h.1.mlp.c_fc.weight"), std::string::npos) << text.out;
    EXPECT_TRUE(succeeded(verified));
    EXPECT_NE(verified.out.find(": ok, step 12"), std::string::npos) << verified.out;
    EXPECT_TRUE(succeeded(json_text));
    const Json json = parse_json(json_text.out);
    EXPECT_EQ(json["step"], 12);
    EXPECT_EQ(json["world_size"], 2);
    EXPECT_EQ(json["files"].size(), 2u);
    EXPECT_EQ(json["trainer_state"]["model"]["channels"], 16);
    EXPECT_EQ(json["trainer_state"]["position"], 12 * kGlobalBatch);
    bool embedding = false;
    for (const Json& tensor : json["tensors"])
      embedding = embedding || (tensor["name"] == "embedding.wte.weight" && tensor["shape"] == Json({257, 16}));
    EXPECT_TRUE(embedding);
  }
}

TEST_F(SavedCheckpoint, GeneratesByTheSeed) {
  const auto generate = [&](const Words& more) {
    Words arguments = {"generate", "--checkpoint", saved_, "--prompt", "line "};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = run_command(arguments);
    EXPECT_TRUE(succeeded(result));
    EXPECT_TRUE(result.out.starts_with("line ") && result.out.ends_with("\n")) << result.out;
    return result.out.substr(5, result.out.size() - 6);
  };
  const std::string one = generate({"--tokens", "60", "--seed", "1"});
  EXPECT_EQ(one, generate({"--tokens", "60", "--seed", "1"}));
  EXPECT_NE(one, generate({"--tokens", "60", "--seed", "2"}));
  const std::string likely = generate({"--tokens", "40", "--temperature", "0", "--seed", "1"});
  EXPECT_EQ(likely, generate({"--tokens", "40", "--temperature", "0", "--seed", "2"}));
  EXPECT_EQ(likely, generate({"--tokens", "40", "--top-k", "1", "--seed", "3"}));
  // The byte tokenizer: a token is a byte, unless the text ends before.
  EXPECT_EQ(likely.size(), 40u);
  EXPECT_EQ(generate({"--tokens", "0"}), "");
  EXPECT_TRUE(generate({"--tokens", "100", "--temperature", "0"}).starts_with(likely))
      << "beyond the length of a sample";
}

}  // namespace
}  // namespace shardcomm::testing
