// The formats of checkpoint files: what we write is read back, and whatever else is read is refused by name, never with
// a crash. Damaged inputs are made by rule and at random.
#include <gtest/gtest.h>

#include <xxhash.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "zero/checkpoint/manifest.h"
#include "zero/checkpoint/safetensors.h"

namespace shardcomm::zero {
namespace {

std::string file_with_header(const std::string& json, size_t data_bytes) {
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(json.size() >> (8 * i));
  return file + json + std::string(data_bytes, 'd');
}

Status parse(const std::string& file) { return parse_safetensors_header(file, file.size(), "x.safetensors").status(); }

void expect_refused(const std::string& json, size_t data_bytes, std::string_view because) {
  const Status status = parse(file_with_header(json, data_bytes));
  EXPECT_EQ(status.code(), Code::kDataLoss) << json;
  EXPECT_NE(status.message().find(because), std::string_view::npos) << status.message();
  EXPECT_NE(status.message().find("x.safetensors"), std::string_view::npos) << status.message();
}

std::string written_file(size_t& head_bytes) {
  std::vector<StoredTensor> tensors = {
      {"a.w", "F32", {2, 3}, 0, 0}, {"empty", "F32", {0}, 0, 0}, {"b \"quoted\" é", "BF16", {5}, 0, 0}};
  const auto head = build_safetensors_header(tensors, {{"a.w", "offset 0 of 2x3"}});
  EXPECT_TRUE(head.ok());
  head_bytes = head.value().size();
  return head.value() + std::string(34, 'd');
}

TEST(Safetensors, ReadsBackWhatItWrites) {
  size_t head_bytes = 0;
  const std::string file = written_file(head_bytes);
  EXPECT_EQ(head_bytes % 8, 0u);
  const auto header = parse_safetensors_header(file, file.size(), "x");
  ASSERT_TRUE(header.ok()) << header.status().to_string();
  ASSERT_EQ(header.value().tensors.size(), 3u);
  EXPECT_EQ(header.value().data_begin, head_bytes);
  EXPECT_EQ(header.value().metadata.at("a.w"), "offset 0 of 2x3");
  EXPECT_EQ(header.value().tensors[0].name, "a.w");
  EXPECT_EQ(header.value().tensors[0].shape, (std::vector<size_t>{2, 3}));
  EXPECT_EQ(header.value().tensors[2].begin, 24u);
  EXPECT_EQ(header.value().tensors[2].end, 34u);
}

TEST(Safetensors, RefusesWhatIsNotTheFormat) {
  const auto one = [](const std::string& rest) { return R"({"t":{)" + rest + "}}"; };
  expect_refused("[]", 0, "not a JSON object");
  expect_refused("{", 0, "not a JSON object");
  expect_refused("{\"t\":1}", 0, "not described by an object");
  expect_refused(one(R"("shape":[1],"data_offsets":[0,4])"), 4, "no dtype");
  expect_refused(one(R"("dtype":"F31","shape":[1],"data_offsets":[0,4])"), 4, "unknown dtype");
  expect_refused(one(R"("dtype":"F32","data_offsets":[0,4])"), 4, "no shape");
  expect_refused(one(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4, "no count");
  expect_refused(one(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])"), 4, "no count");
  expect_refused(one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 4, "too many elements");
  expect_refused(one(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), 4, "no data_offsets");
  expect_refused(one(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 4, "do not hold");
  expect_refused(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,8])"), 8, "do not hold");
  expect_refused(one(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), 8, "begins at byte");
  expect_refused(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), 3, "need 4 bytes");
  expect_refused(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), 5, "need 4 bytes");
  expect_refused(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
      8, "begins at byte");
  expect_refused(R"({"__metadata__":{"a":1}})", 0, "not a string");
  expect_refused(R"({"__metadata__":[]})", 0, "metadata is not an object");
  expect_refused(std::string(100'000, '['), 0, "not a JSON object");
  expect_refused(R"({"t":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}", 0, "not a JSON object");
}

TEST(Safetensors, RefusesAbsurdLengths) {
  for (const std::string& file :
       {std::string(), std::string("1234567"), std::string(8, '\xff'), std::string("\x10\0\0\0\0\0\0\0{}", 10)}) {
    const Status status = parse(file);
    EXPECT_EQ(status.code(), Code::kDataLoss);
  }
}

TEST(Safetensors, SurvivesRandomDamage) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  size_t head_bytes = 0;
  const std::string good = written_file(head_bytes);
  for (int round = 0; round < 20'000; ++round) {
    std::string file = good.substr(0, random() % 8 == 0 ? random() % good.size() : good.size());
    for (size_t hits = random() % 4; hits > 0 && !file.empty(); --hits)
      file[random() % std::min(file.size(), head_bytes)] = static_cast<char>(random());
    const auto header = parse_safetensors_header(file, file.size(), "x");
    if (!header.ok()) {
      ASSERT_EQ(header.status().code(), Code::kDataLoss);
      continue;
    }
    for (const StoredTensor& tensor : header.value().tensors)
      ASSERT_LE(header.value().data_begin + tensor.end, file.size());
  }
}

Manifest example() {
  Manifest manifest;
  manifest.step = 10;
  manifest.world_size = 2;
  manifest.optimizer_steps = 10;
  manifest.trainer_state = R"({"position":12345678901234567890,"rate":0.1})";
  manifest.tensors["a.w"] = {
      {2, 5},
      {{"shard-0000-of-0002.safetensors", 0, 6, 1}, {"shard-0001-of-0002.safetensors", 6, 4, 0xffff'ffff'ffff'ffff}}};
  manifest.tensors["a.empty"] = {{0, 7}, {}};
  manifest.files["shard-0000-of-0002.safetensors"] = {128, 2};
  manifest.files["shard-0001-of-0002.safetensors"] = {136, 3};
  manifest.tied["b.w"] = "a.w";
  return manifest;
}

TEST(Manifest, ReadsBackWhatItWrites) {
  const auto text = manifest_to_text(example());
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  const auto read = parse_manifest(text.value(), "m");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read.value().step, 10u);
  EXPECT_EQ(read.value().world_size, 2);
  EXPECT_EQ(read.value().optimizer_steps, 10u);
  EXPECT_EQ(read.value().trainer_state, R"({"position":12345678901234567890,"rate":0.1})");
  ASSERT_EQ(read.value().tensors.at("a.w").pieces.size(), 2u);
  EXPECT_EQ(read.value().tensors.at("a.w").pieces[1].checksum, 0xffff'ffff'ffff'ffffu);
  EXPECT_EQ(read.value().tied.at("b.w"), "a.w");
  EXPECT_EQ(read.value().files.at("shard-0001-of-0002.safetensors").head_checksum, 3u);
}

// What has one run in each file is written as it always was; several need to say where they begin.
TEST(Manifest, IsOfTheLowestVersionThatCanSayIt) {
  Manifest manifest = example();
  const auto version = [&] { return nlohmann::json::parse(manifest_to_text(manifest).value())["version"].get<int>(); };
  EXPECT_EQ(version(), 1);
  EXPECT_EQ(manifest_to_text(manifest).value().find("begin"), std::string::npos);
  const std::string file = "shard-0000-of-0002.safetensors";
  manifest.tensors["a.v"] = {{10},
                             {{file, 0, 3, 1, 0}, {"shard-0001-of-0002.safetensors", 3, 3, 2, 0}, {file, 6, 4, 3, 3}}};
  EXPECT_EQ(version(), 2);
  const auto read = parse_manifest(manifest_to_text(manifest).value(), "m");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  const std::vector<ManifestPiece>& pieces = read.value().tensors.at("a.v").pieces;
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].begin, 0u);
  EXPECT_EQ(pieces[2].begin, 3u);
  EXPECT_EQ(pieces[2].offset, 6u);
}

std::string resealed(nlohmann::json json) {
  json.erase("checksum");
  const std::string bytes = json.dump();
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
  json["checksum"] = hex;
  return json.dump();
}

// Changes the JSON and gives it the checksum it would have, so that what is behind the checksum is tested too.
Status parse_changed(const std::function<void(nlohmann::json&)>& change) {
  Manifest manifest = example();
  const std::string text = manifest_to_text(manifest).value();
  nlohmann::json json = nlohmann::json::parse(text);
  change(json);
  return parse_manifest(resealed(json), "m").status();
}

TEST(Manifest, RefusesEveryChangeWithoutItsChecksum) {
  const std::string good = manifest_to_text(example()).value();
  size_t accepted = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    std::string text = good;
    text[i] = static_cast<char>(text[i] ^ 1);
    const auto read = parse_manifest(text, "m");
    if (read.ok()) {
      // Blanks between tokens carry nothing.
      ASSERT_TRUE(good[i] == ' ' || good[i] == '\n') << i;
      ++accepted;
    } else {
      ASSERT_EQ(read.status().code(), Code::kDataLoss);
    }
    ASSERT_FALSE(parse_manifest(good.substr(0, i), "m").ok());
  }
  EXPECT_LT(accepted, good.size() / 2);
}

TEST(Manifest, RefusesPiecesThatDoNotCoverATensorOnce) {
  const auto refused = [](std::string_view because, const std::function<void(nlohmann::json&)>& change) {
    const Status status = parse_changed(change);
    EXPECT_EQ(status.code(), Code::kDataLoss) << because;
    EXPECT_NE(status.message().find(because), std::string_view::npos) << status.message();
  };
  EXPECT_TRUE(parse_changed([](auto&) {}).ok());
  refused("[0, 1) in no file", [](auto& j) { j["tensors"]["a.w"]["pieces"][0]["offset"] = 1; });
  refused("in two files", [](auto& j) { j["tensors"]["a.w"]["pieces"][1]["offset"] = 5; });
  refused("[6, 7) in no file", [](auto& j) { j["tensors"]["a.w"]["pieces"][1]["offset"] = 7; });
  refused("[6, 10) in no file", [](auto& j) { j["tensors"]["a.w"]["pieces"].erase(1); });
  refused("in two files", [](auto& j) { j["tensors"]["a.w"]["pieces"].push_back(j["tensors"]["a.w"]["pieces"][1]); });
  refused("in two files", [](auto& j) { j["tensors"]["a.w"]["pieces"][1]["count"] = uint64_t{0xffff'ffff'ffff'fff0}; });
  refused("is said to be in the file", [](auto& j) { j["tensors"]["a.w"]["pieces"][0]["file"] = "../../etc/passwd"; });
  refused("is said to be in the file", [](auto& j) { j["tensors"]["a.w"]["pieces"][0]["file"] = ""; });
  refused("is no checksum", [](auto& j) { j["tensors"]["a.w"]["pieces"][0]["checksum"] = "xyz"; });
  refused("which is not listed", [](auto& j) { j["files"].erase("shard-0001-of-0002.safetensors"); });
  refused("is no checksum", [](auto& j) { j["files"]["shard-0001-of-0002.safetensors"].erase("head_checksum"); });
  refused("not of dtype F32", [](auto& j) { j["tensors"]["a.w"]["dtype"] = "F64"; });
  refused("version 4", [](auto& j) { j["version"] = 4; });
  refused("version 0", [](auto& j) { j["version"] = 0; });
  refused("begin is not a count", [](auto& j) { j["tensors"]["a.w"]["pieces"][0]["begin"] = -1; });
  refused("no shardcomm checkpoint", [](auto& j) { j["format"] = "zip"; });
  refused("step is not a count", [](auto& j) { j["step"] = -1; });
  refused("world_size is not a count", [](auto& j) { j["world_size"] = uint64_t{1} << 40; });
  refused("tied to what is not there", [](auto& j) { j["tied"]["b.w"] = "c.w"; });
  refused("trainer_state is not an object", [](auto& j) { j["trainer_state"] = 3; });
}

TEST(Manifest, TakesOnlyObjectsAsTrainerState) {
  EXPECT_EQ(compact_object("").value(), "{}");
  EXPECT_EQ(compact_object(" { \"a\" : [1, 2] } ").value(), R"({"a":[1,2]})");
  for (const char* text : {"[]", "3", "{", "{}x", "null"})
    EXPECT_EQ(compact_object(text).status().code(), Code::kInvalidArgument) << text;
}

TEST(Manifest, RefusesNamesThatAreNotText) {
  Manifest manifest = example();
  manifest.tensors["bad \xff name"] = {{0}, {}};
  EXPECT_EQ(manifest_to_text(manifest).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace shardcomm::zero
